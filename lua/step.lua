-- step: stores the result of a finished step, or reads all results of the operation.
--
-- KEYS[1]  the record
-- KEYS[2]  the steps of its operation, a hash: see results.lua; absent if its slot moves, and then steps.lua follows
-- ARGV[1]  owner
-- ARGV[2]  fence
-- ARGV[3]  retention, ms
-- ARGV[4]  step; absent to read
-- ARGV[5]  result; absent to read
--
-- Returns, and leaves the state of the record as it is:
--   {'ok'}                      STARTED under this claim; the result is stored
--   {'ok', step, result, ...}   STARTED under this claim, without ARGV[4]
--   {'ok', operation}           STARTED under this claim, without KEYS[2]: the name of its operation, for steps.lua
--   {'gone'}                    absent; nothing changes
--   {'lost'}                    another claim, or no longer STARTED; nothing changes
--   {'unreadable'}              the string is not a record of format 1; nothing changes
--
-- PEXPIRE is the first write, because a full server accepts a script whose first write needs no memory, and it must store the
-- result of a finished step.
local record = redis.call('GET', KEYS[1])

-- [record.lua]
-- [results.lua]

if not record then return {'gone'} end
local stored = record
record = in_format_1(record, ARGV[1], ARGV[2])
if not readable(record) then return {'unreadable'} end
if state(record) ~= STARTED or not holds(record, ARGV[1], ARGV[2]) then return {'lost'} end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if stored ~= record then redis.call('SET', KEYS[1], record, 'PX', ARGV[3]) end
local mark = fingerprint(record) .. operation(record)
if not KEYS[2] then return {'ok', mark} end
if redis.call('HGET', KEYS[2], '') ~= mark then redis.call('DEL', KEYS[2]) end -- of an earlier operation under this key
return store_or_read(KEYS[2], mark, string.sub(record, 11, 26))
