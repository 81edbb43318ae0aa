-- results: the layout of the results of steps, which are one hash, and the function with which step and steps use it.
-- lua.go inserts this file into a script at the comment that names it.
--
--   field    value
--   a step   its result; a step whose name is NULs alone has two more of them
--   ''       the name of the operation that the results belong to: the fingerprint of its request, and the fence of its first
--            claim
--   '\0'     the fence of the last claim that has stored a result
--
-- store_or_read stores the result ARGV[5] of the step ARGV[4], or returns all steps and results if ARGV[4] is absent. Both
-- start the retention ARGV[3] of the hash anew.
local function store_or_read(key, operation_name, claim_fence)
  local reply = {'ok'}
  if ARGV[4] then
    redis.call('HSET', key, '', operation_name, '\0', claim_fence, ARGV[4], ARGV[5])
  else
    local fields = redis.call('HGETALL', key)
    for i = 1, #fields, 2 do
      if fields[i] ~= '' and fields[i] ~= '\0' then
        reply[#reply + 1] = fields[i]
        reply[#reply + 1] = fields[i + 1]
      end
    end
  end
  redis.call('PEXPIRE', key, ARGV[3])
  return reply
end
