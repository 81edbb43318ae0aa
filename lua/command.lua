-- command: runs one command on one key.
--
-- The store uses it while a slot of a Cluster moves: a record and its extra keys may then be on two nodes, and a script can
-- have only keys of one node.
--
-- KEYS[1]  the record, its tombstone or its steps
-- ARGV     the name of a command, and its arguments after the key
--
-- Returns the reply of the command, and leaves the state of the record as it is.
--
-- Before a SET, whose fourth argument is its TTL in ms, comes a PEXPIRE with the same TTL, because a full server accepts a
-- script whose first write needs no memory.
if ARGV[1] == 'SET' then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))
