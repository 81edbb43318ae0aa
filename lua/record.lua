-- record: the layout of a record, which is one string, and the functions with which the scripts read it.
--
-- lua.go inserts this file into each script at the comment that names it. To define the functions costs a script 1 µs, so
-- begin and complete handle their usual cases before that comment.
--
--   bytes   field
--   1       format, '1'; '2' in a native claim, see below
--   2       state: '1' STARTED, '2' COMPLETED, '4' FAILED; two bits apart, so that one flipped bit makes no other state
--   3       history of this request under this key: '0' no effects, '1' a lease ended without an outcome (takeover),
--           '2' a run failed that may have had effects
--   4       STARTED: how the end of the claim is published: '0' not at all, '1' with PUBLISH, '2' with SPUBLISH (Cluster);
--           FAILED: '1', or '2' if its attempt was given back, or '0' if an earlier version wrote the record and noted no owners
--   5-10    attempt, decimal; 0 in a FAILED record that a withdrawn begin has left, or that was reopened
--   11-26   fence, decimal
--   27-58   fingerprint; 32 zero bytes in a FAILED record that is free for another request
--
-- A COMPLETED record has owner XOR fence, as 16 bytes, in place of the fence. No script needs either of them, but they let
-- only the claim that completed the record send the same record again. The outcome follows. In other records these fields
-- follow:
--   59-74   end of the lease, µs of this server's clock, decimal
--   75-90   owner
--   91-106  operation: the fence of the first claim since the key was last absent, free or reopened, decimal; 0 if there was no
--           claim yet (an earlier version copies this 0 into the first claim)
--   then    STARTED: up to 16 noted owners, 16 bytes each: earlier owners that have failed or withdrawn, the latest last;
--           FAILED: the number of noted owners, 2 decimal digits, the noted owners, and the cause
-- A STARTED record of attempt 1 without noted owners ends after its owner, because its operation is its fence. In a FAILED
-- record of an earlier version the cause follows the owner, if the attempt is 1, or otherwise the operation.
--
-- A native claim is a STARTED record of attempt 1 that the client has made with SET, without a script. SET cannot write the time
-- of the server, so this record has durations in place of two fields, and the server's expiry, in ms, tells the rest:
--   11-23   retention, ms; the expiry less the retention is the time of the claim
--   24-26   the last digits of the fence, which the client has chosen; the others are the time of the claim in ms
--   59-74   lease, µs; the lease ends so long after the end of that ms
-- What stands at 91-106 counts for nothing, since the operation of a native claim is its fence. The first script of the owner that
-- changes the record writes it in format 1. Scripts of others leave it, because their fence may differ from the one that the
-- owner knows: MIGRATE, which moves keys between the nodes of a Cluster, keeps the time left, so the expiry is later and
-- counts on another clock. Therefore a script takes the fence of the owner as true, unless it is further away than a lease or a
-- retention. Without an expiry, which an operator may have removed, the time of the claim is the present.
--
-- Numbers are decimal text of fixed width, because '..' and tostring print a number of µs as 1.79e+15. Numbers in arguments of
-- redis.call are written as strings, because a server needs 0.7 µs to print a number.
local STARTED, COMPLETED, FAILED = '1', '2', '4'
local NONE = string.rep('0', 16) -- no operation

local function state(record) return string.sub(record, 2, 2) end
local function history(record) return string.sub(record, 3, 3) end
local function waiters(record) return string.sub(record, 4, 4) end

-- attempt returns the number of attempts that count.
local function attempt(record)
  local back = state(record) == FAILED and waiters(record) == '2'
  return tonumber(string.sub(record, 5, 10)) - (back and 1 or 0)
end
local function fingerprint(record) return string.sub(record, 27, 58) end

-- These fields are not in a COMPLETED record:
local function fence(record) return tonumber(string.sub(record, 11, 26)) end
local function lease_end(record) return tonumber(string.sub(record, 59, 74)) end
local function owner(record) return string.sub(record, 75, 90) end

-- now returns the time of this server's clock in µs.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- digits reports whether text is this many decimal digits.
local function digits(text, count) return #text == count and string.find(text, '^%d+$') ~= nil end

-- in_format_1 returns a native claim in format 1, and any other string as it is. claim_owner and claim_fence are those of the
-- caller, if it has a claim.
local function in_format_1(record, claim_owner, claim_fence)
  local whole = #record == 90 or #record >= 106 -- readable looks at the rest of the length
  local numbers = string.sub(record, 11, 26) .. string.sub(record, 59, 74)
  if not whole or not string.find(record, '^210[012]000001') or not digits(numbers, 32) then return record end
  local retention, lease = tonumber(string.sub(record, 11, 23), 10), tonumber(string.sub(record, 59, 74), 10)
  local expires, known = redis.call('PEXPIRETIME', KEYS[1]), tonumber(claim_fence)
  local present = now()
  local ms = expires < 0 and math.floor(present / 1000) or expires - retention
  local time, ends = ms * 1000 + tonumber(string.sub(record, 24, 26), 10), math.min(ms * 1000 + 1000, present) + lease
  if known and string.sub(record, 75, 90) == claim_owner and (known - time) % 1000 == 0
    and (expires < 0 or math.abs(known - time) <= math.min(lease, retention * 1000)) then time = known end
  local fence_text, lease_text = string.format('%016.0f', time), string.format('%016.0f', ends)
  local owners = #record > 90 and fence_text .. string.sub(record, 107) or ''
  return '1' .. string.sub(record, 2, 10) .. fence_text .. string.sub(record, 27, 58) .. lease_text ..
    string.sub(record, 75, 90) .. owners
end

-- readable reports whether record is of format 1 and has all fields before the outcome or the cause.
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

-- operation returns the fence of the operation's first claim, as text.
local function operation(record)
  local short = #record == 90 or state(record) == FAILED and waiters(record) == '0' and attempt(record) == 1
  local text = string.sub(record, 91, 106)
  return (short or text == NONE) and string.sub(record, 11, 26) or text
end

-- noted returns the noted owners as one string.
local function noted(record)
  if state(record) == STARTED then return string.sub(record, 107) end
  if waiters(record) == '0' then return '' end
  return string.sub(record, 109, 108 + 16 * tonumber(string.sub(record, 107, 108)))
end

-- notes reports whether record notes claim_owner.
local function notes(record, claim_owner)
  local owners = noted(record)
  for i = 1, #owners, 16 do
    if string.sub(owners, i, i + 15) == claim_owner then return true end
  end
  return false
end

-- holds reports whether this claim is the last one of a record that is not COMPLETED. A fence of '0' means that the owner
-- does not know it; then only the owners are compared.
local function holds(record, claim_owner, claim_fence)
  return owner(record) == claim_owner and (claim_fence == '0' or fence(record) == tonumber(claim_fence))
end

-- claimed returns the reply of begin to the owner of the claim.
local function claimed(claim_fence, claim_attempt, past, left, claim_operation)
  return string.format('claimed %.0f %d %d %.0f ', claim_fence, claim_attempt, past == '1' and 1 or 0, left) .. claim_operation
end

-- wake publishes that the claim has ended, if requests have subscribed. The channel has the name of the record, and so the
-- same slot in a Cluster. If the server does not allow this client to publish, the call succeeds all the same, and the
-- requests poll.
local function wake(record)
  if waiters(record) == '1' then redis.pcall('PUBLISH', KEYS[1], '') end
  if waiters(record) == '2' then redis.pcall('SPUBLISH', KEYS[1], '') end
end
