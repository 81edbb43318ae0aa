-- steps: stores the result of a finished step, or reads all results, without the record.
--
-- The store uses it while a slot of a Cluster moves, because record and steps may then be on two nodes. First step.lua checks
-- the claim on the record, and then this script does the rest. Another claim may have begun in between.
--
-- KEYS[1]  the steps of the operation, a hash: see results.lua
-- ARGV[1]  the name of the operation, from step.lua
-- ARGV[2]  fence, 16 digits
-- ARGV[3]  retention, ms
-- ARGV[4]  step; absent to read
-- ARGV[5]  result; absent to read
--
-- Returns, and leaves the state of the record as it is:
--   {'ok'}                      the result is stored
--   {'ok', step, result, ...}   without ARGV[4]
--   {'lost'}                    the steps belong to a later operation, or a later claim has stored one of them; nothing changes
--
-- DEL or PEXPIRE is the first write, because a full server accepts a script whose first write needs no memory.

-- [results.lua]

local mark, last = redis.call('HGET', KEYS[1], ''), redis.call('HGET', KEYS[1], '\0')
if mark and mark ~= ARGV[1] then
  if string.sub(mark, 33) > string.sub(ARGV[1], 33) then return {'lost'} end
  redis.call('DEL', KEYS[1]) -- an earlier operation under this key
elseif last and tonumber(last) > tonumber(ARGV[2]) then
  return {'lost'}
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return store_or_read(KEYS[1], ARGV[1], ARGV[2])
