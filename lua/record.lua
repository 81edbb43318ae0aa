-- record: the layout of the one string that a key holds, and how the scripts read it.
-- lua.go puts this file where a script names it. Functions cost a script 1 µs, so the usual ways through begin and complete
-- come before that.
--
--   bytes   field
--   1       format, '1'
--   2       state: '1' STARTED, '2' COMPLETED, '4' FAILED; two bits apart, so that one flipped bit is never another state
--   3       history of this request under this key: '0' no effects, '1' a lease ended without an outcome (takeover),
--           '2' a run failed that may have had effects
--   4       who waits for the end of the claim: '0' nobody, '1' listeners of PUBLISH, '2' of SPUBLISH (Cluster)
--   5-10    attempt, decimal
--   11-26   fence, decimal
--   27-42   end of the lease, µs of this server's clock, decimal
--   43-74   fingerprint; 32 zero bytes in a FAILED record that is free for another request
--   75-90   owner
--   91-106  of a STARTED or FAILED record, from attempt 2 on: the fence of attempt 1, which tells one operation under the key
--           from the next
--   then    the outcome (COMPLETED) or the cause (FAILED)
--
-- Numbers are fixed-width decimal text: '..' and tostring print a µs number as 1.79e+15 on a real server.
local STARTED, COMPLETED, FAILED = '1', '2', '4'

-- readable tells whether head is of a record of format 1.
local function readable(head)
  return #head == 90 and string.find(string.sub(head, 1, 42), '^1[124][012][012]%d+$') ~= nil
end

local function state(head) return string.sub(head, 2, 2) end
local function history(head) return string.sub(head, 3, 3) end
local function waiters(head) return string.sub(head, 4, 4) end
local function attempt(head) return tonumber(string.sub(head, 5, 10)) end
local function fence(head) return tonumber(string.sub(head, 11, 26)) end
local function lease_end(head) return tonumber(string.sub(head, 27, 42)) end
local function fingerprint(head) return string.sub(head, 43, 74) end
local function owner(head) return string.sub(head, 75, 90) end

-- first is the fence of attempt 1, as it stands in the record.
local function first(record)
  if attempt(record) == 1 then return string.sub(record, 11, 26) end
  return string.sub(record, 91, 106)
end

-- holds: is the record's last claim this one? A fence of 0 stands for "not known": the owner alone decides.
local function holds(head, claim_owner, claim_fence)
  return owner(head) == claim_owner and (claim_fence == '0' or fence(head) == tonumber(claim_fence))
end

-- claimed is begin's answer to who has the claim.
local function claimed(claim_fence, claim_attempt, past, left)
  return string.format('claimed %.0f %d %d %.0f', claim_fence, claim_attempt, past == '1' and 1 or 0, left)
end

-- now returns this server's clock in µs.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- wake tells those who wait that the claim has ended. The channel has the record's name, so also its slot. A server that
-- does not let this client publish costs them a slow check, and the verb nothing.
local function wake(head)
  if waiters(head) == '1' then redis.pcall('PUBLISH', KEYS[1], '') end
  if waiters(head) == '2' then redis.pcall('SPUBLISH', KEYS[1], '') end
end
