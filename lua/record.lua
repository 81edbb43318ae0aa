-- record: the layout of the one string that a key holds, and how the scripts read it.
-- lua.go puts this file where a script names it. Functions cost a script 1 µs, so the usual ways through begin and complete
-- do without them.
--
--   bytes   field
--   1       format, '1'
--   2       state: '1' STARTED, '2' COMPLETED, '4' FAILED; two bits apart, so that one flipped bit is never another state
--   3       history of this request under this key: '0' no effects, '1' a lease ended without an outcome (takeover),
--           '2' a run failed that may have had effects
--   4       STARTED: who waits for the end of the claim: '0' nobody, '1' listeners of PUBLISH, '2' of SPUBLISH (Cluster);
--           FAILED: '1', '2' if its attempt was given back, or '0' if an earlier version has written it, which notes nobody
--   5-10    attempt, decimal; 0 in a FAILED record that a withdrawn begin has left, or that was reopened
--   11-26   fence, decimal
--   27-58   fingerprint; 32 zero bytes in a FAILED record that is free for another request
--
-- A COMPLETED record has owner XOR fence, as bytes, where others have the fence: nobody asks for either, but only the claim
-- that completed can send the same record again. It goes on with the outcome; others go on with:
--   59-74   end of the lease, µs of this server's clock, decimal
--   75-90   owner
--   91-106  operation: the fence of the first claim since the key was last absent, free or reopened, decimal; 0 where there
--           was none yet, which an earlier version hands on to the first claim
--   then    STARTED: up to 16 noted owners, 16 bytes each: earlier ones that have failed or withdrawn, the last one last
--           FAILED: their number, 2 decimal digits, these owners, and the cause
-- A STARTED record of attempt 1 that notes nobody ends with its owner, since its operation is its fence. A FAILED one of an
-- earlier version has the cause behind the owner, if of attempt 1, or behind the operation.
--
-- Numbers are fixed-width decimal text: '..' and tostring print a µs number as 1.79e+15 on a real server. Numbers for
-- redis.call are written as strings, since it takes a server 0.7 µs to print one.
local STARTED, COMPLETED, FAILED = '1', '2', '4'
local NONE = string.rep('0', 16) -- no operation

local function state(record) return string.sub(record, 2, 2) end
local function history(record) return string.sub(record, 3, 3) end
local function waiters(record) return string.sub(record, 4, 4) end
local function attempt(record)
  local back = state(record) == FAILED and waiters(record) == '2'
  return tonumber(string.sub(record, 5, 10)) - (back and 1 or 0)
end
local function fingerprint(record) return string.sub(record, 27, 58) end

-- Not of a COMPLETED record:
local function fence(record) return tonumber(string.sub(record, 11, 26)) end
local function lease_end(record) return tonumber(string.sub(record, 59, 74)) end
local function owner(record) return string.sub(record, 75, 90) end

local function digits(text, count) return #text == count and string.find(text, '^%d+$') ~= nil end

-- readable tells whether record is one of format 1, and whole but for the outcome or the cause.
local function readable(record)
  if #record < 58 or not string.find(string.sub(record, 1, 10), '^1[124][012][012]%d+$') then return false end
  if state(record) == COMPLETED then return true end
  if not digits(string.sub(record, 11, 26) .. string.sub(record, 59, 74), 32) then return false end
  local short = #record >= 90 and attempt(record) == 1
  local long = digits(string.sub(record, 91, 106), 16)
  if state(record) == STARTED then
    return short and #record == 90 or long and (#record - 106) % 16 == 0 and #record <= 106 + 256
  end
  if waiters(record) == '0' then return short or long end
  local count = string.sub(record, 107, 108)
  return long and digits(count, 2) and tonumber(count) <= 16 and #record >= 108 + 16 * tonumber(count)
end

-- operation is the fence of the operation's first claim, as text.
local function operation(record)
  local short = #record == 90 or state(record) == FAILED and waiters(record) == '0' and attempt(record) == 1
  local text = string.sub(record, 91, 106)
  return (short or text == NONE) and string.sub(record, 11, 26) or text
end

-- noted is the noted owners, one behind the other.
local function noted(record)
  if state(record) == STARTED then return string.sub(record, 107) end
  if waiters(record) == '0' then return '' end
  return string.sub(record, 109, 108 + 16 * tonumber(string.sub(record, 107, 108)))
end

local function notes(record, claim_owner)
  local owners = noted(record)
  for i = 1, #owners, 16 do
    if string.sub(owners, i, i + 15) == claim_owner then return true end
  end
  return false
end

-- holds: is the last claim of a record that is not COMPLETED this one? A fence of 0 stands for "not known": the owner alone
-- decides.
local function holds(record, claim_owner, claim_fence)
  return owner(record) == claim_owner and (claim_fence == '0' or fence(record) == tonumber(claim_fence))
end

-- claimed is begin's answer to who has the claim.
local function claimed(claim_fence, claim_attempt, past, left, claim_operation)
  return string.format('claimed %.0f %d %d %.0f ', claim_fence, claim_attempt, past == '1' and 1 or 0, left) .. claim_operation
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
