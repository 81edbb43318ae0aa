-- step: keep the results of finished steps beside the record, and read them.
--
-- KEYS[1]  the record
-- KEYS[2]  the steps of its runs, a hash: step -> result, and '' -> the operation they belong to:
--          the fingerprint of its request and the fence of its first claim
-- ARGV[1]  owner   ARGV[2]  fence   ARGV[3]  retention, ms
-- ARGV[4]  step    ARGV[5]  result; without them the steps are read
--
-- Returns, and leaves the state of the record as it is:
--   {'ok', step, result, ...}   STARTED under this claim
--   {'ok', operation}           the same, without KEYS[2]
--   {'lost'}                    absent, another claim, or no longer STARTED
--   {'unreadable'}              not a record of format 1
--
-- PEXPIRE comes first: a full server accepts a script whose first write needs no memory, and a finished step must be
-- recorded.
local record = redis.call('GET', KEYS[1])

-- [record.lua]

if not record then return {'lost'} end
if not readable(record) then return {'unreadable'} end
if state(record) ~= STARTED or not holds(record, ARGV[1], ARGV[2]) then return {'lost'} end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local mark = fingerprint(record) .. operation(record)
if not KEYS[2] then return {'ok', mark} end
if redis.call('HGET', KEYS[2], '') ~= mark then redis.call('DEL', KEYS[2]) end -- an earlier one under this key
local answer = {'ok'}
if ARGV[4] then
  redis.call('HSET', KEYS[2], '', mark, '\0', string.sub(record, 11, 26), ARGV[4], ARGV[5])
else
  local steps = redis.call('HGETALL', KEYS[2])
  for i = 1, #steps, 2 do
    if steps[i] ~= '' and steps[i] ~= '\0' then
      answer[#answer + 1] = steps[i]
      answer[#answer + 1] = steps[i + 1]
    end
  end
end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return answer
