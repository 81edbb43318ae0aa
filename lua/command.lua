-- one: one command on one key.
--
-- It is for a slot that moves: what lies in it is on two nodes then, and no script can have two keys that are not both there.
--
-- KEYS[1]  the record, or what lies beside it
-- ARGV[1]  a command, whose first argument is the key, and behind it its other arguments
--
-- Returns what the command does.
--
-- PEXPIRE comes before a SET, whose fourth argument is the same time: a full server accepts a script whose first write needs no
-- memory.
if ARGV[1] == 'SET' then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))
