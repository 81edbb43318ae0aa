-- record: the layout of the one string that a key holds, and how the scripts read it.
-- lua.go puts this file where a script names it. Functions cost a script 1 µs, so the usual ways through begin and complete
-- do without them.
--
--   bytes   field
--   1       format, '1'
--   2       state: '1' STARTED, '2' COMPLETED, '4' FAILED; two bits apart, so that one flipped bit is never another state
--   3       history of this request under this key: '0' no effects, '1' a lease ended without an outcome (takeover),
--           '2' a run failed that may have had effects
--   4       who waits for the end of the claim: '0' nobody, '1' listeners of PUBLISH, '2' of SPUBLISH (Cluster)
--   5-10    attempt, decimal
--   11-26   fence, decimal
--   27-58   fingerprint; 32 zero bytes in a FAILED record that is free for another request
--
-- A COMPLETED record has owner XOR fence, as bytes, where others have the fence: nobody asks for either, but only the claim
-- that completed can send the same record again. It goes on with the outcome; others go on with:
--   59-74   end of the lease, µs of this server's clock, decimal
--   75-90   owner
--   91-106  from attempt 2 on: the fence of attempt 1, which tells one operation under the key from the next
--   then    the cause, if FAILED
--
-- Numbers are fixed-width decimal text: '..' and tostring print a µs number as 1.79e+15 on a real server. Numbers for
-- redis.call are written as strings, since it takes a server 0.7 µs to print one.
local STARTED, COMPLETED, FAILED = '1', '2', '4'

local function state(record) return string.sub(record, 2, 2) end
local function history(record) return string.sub(record, 3, 3) end
local function waiters(record) return string.sub(record, 4, 4) end
local function attempt(record) return tonumber(string.sub(record, 5, 10)) end
local function fingerprint(record) return string.sub(record, 27, 58) end

-- Not of a COMPLETED record:
local function fence(record) return tonumber(string.sub(record, 11, 26)) end
local function lease_end(record) return tonumber(string.sub(record, 59, 74)) end
local function owner(record) return string.sub(record, 75, 90) end

-- readable tells whether record is one of format 1, and whole but for the outcome or the cause.
local function readable(record)
  if #record < 58 or not string.find(string.sub(record, 1, 10), '^1[124][012][012]%d+$') then return false end
  if state(record) == COMPLETED then return true end
  return #record >= 90 and string.find(string.sub(record, 11, 26) .. string.sub(record, 59, 74), '^%d+$') ~= nil
end

-- first is the fence of attempt 1, as it stands in the record.
local function first(record)
  if attempt(record) == 1 then return string.sub(record, 11, 26) end
  return string.sub(record, 91, 106)
end

-- holds: is the last claim of a record that is not COMPLETED this one? A fence of 0 stands for "not known": the owner alone
-- decides.
local function holds(record, claim_owner, claim_fence)
  return owner(record) == claim_owner and (claim_fence == '0' or fence(record) == tonumber(claim_fence))
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
local function wake(record)
  if waiters(record) == '1' then redis.pcall('PUBLISH', KEYS[1], '') end
  if waiters(record) == '2' then redis.pcall('SPUBLISH', KEYS[1], '') end
end
