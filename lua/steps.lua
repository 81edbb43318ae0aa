-- steps: what step does, to the steps alone.
--
-- It is for a slot that moves: record and steps are on two nodes then, so step checks the claim on the record, and this script
-- does the rest. In between another claim may have come.
--
-- KEYS[1]  the steps of its runs: see step
-- ARGV[1]  the operation, as step puts it into them   ARGV[2]  fence   ARGV[3]  retention, ms
-- ARGV[4]  step    ARGV[5]  result; without them the steps are read
--
-- Returns:
--   {'ok', step, result, ...}
--   {'lost'}     the steps belong to a later operation, or a later claim has kept one of them; nothing changes
--
-- PEXPIRE comes first of what needs memory: a full server accepts a script whose first write needs none.
local mark, last = redis.call('HGET', KEYS[1], ''), redis.call('HGET', KEYS[1], '\0')
if mark and mark ~= ARGV[1] then
  if string.sub(mark, 33) > string.sub(ARGV[1], 33) then return {'lost'} end
  redis.call('DEL', KEYS[1]) -- an earlier operation under this key
elseif last and tonumber(last) > tonumber(ARGV[2]) then
  return {'lost'}
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local answer = {'ok'}
if ARGV[4] then
  redis.call('HSET', KEYS[1], '', ARGV[1], '\0', ARGV[2], ARGV[4], ARGV[5])
else
  local steps = redis.call('HGETALL', KEYS[1])
  for i = 1, #steps, 2 do
    if steps[i] ~= '' and steps[i] ~= '\0' then
      answer[#answer + 1] = steps[i]
      answer[#answer + 1] = steps[i + 1]
    end
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return answer
