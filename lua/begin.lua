-- begin: claim the key, or say what holds it.
--
-- KEYS[1]  the record
-- KEYS[2]  its tombstone; absent when the claim does not ask for it
-- ARGV[1]  owner, 16 bytes, the same each time this begin is sent
-- ARGV[2]  fingerprint, 32 bytes
-- ARGV[3]  lease, µs
-- ARGV[4]  retention, ms
-- ARGV[5]  '1' to take over a claim whose lease ended without an outcome, '0' to report it, or the one fence to take over
-- ARGV[6]  who will wait when the key is in progress: '0' nobody, '1' a listener of PUBLISH, '2' of SPUBLISH
-- ARGV[7]  '1' to be told what is left of the retention of an outcome; else absent
-- ARGV[8]  '1' when the tombstone is known to be there, by who could not name it: its slot moves; else absent
--
-- Returns one string, a word and what belongs to it with spaces between, and the edge it stands for:
--   claimed fence attempt takeover µs-left operation
--                          absent, FAILED, or STARTED with its lease over -> STARTED;
--                          the same answer again to the owner of a STARTED record
--   in-progress µs-left    STARTED under another owner; the record remembers who waits
--   unknown fence          STARTED, lease over, no takeover allowed
--   a record               COMPLETED; it begins with its format, a digit, as no word does
--   completed ms-left record   the same, to who asks what is left of the retention
--   completed ms-left      COMPLETED, and the record has 2048 bytes or more: Lua copies slowly, so it is left to a GET
--   mismatch fingerprint   another request's fingerprint is in the record
--   expired                absent, or free and without an attempt, but there is a tombstone: an outcome was kept, and its
--                          retention is over
--   lost                   FAILED by this very owner, or one that is noted: this begin arrives after its own fail
--   unreadable             not a record of format 1
--
-- SET comes first of all writes: a full server that evicts nothing refuses a new claim. Its NX tells an absent record from
-- one that was emptied.
local record = redis.call('GETRANGE', KEYS[1], '0', '2047')
if record == '' then -- what most requests find: this and a plain replay do without the functions below
  if ARGV[8] or KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 then
    return redis.call('EXISTS', KEYS[1]) == 1 and 'unreadable' or 'expired'
  end
  local time = redis.call('TIME')
  local fence = string.sub('0000000000', #time[1] + 1) .. time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
  local lease_end = string.format('%016.0f', time[1] * 1000000 + time[2] + ARGV[3])
  local claim = '1100000001' .. fence .. ARGV[2] .. lease_end .. ARGV[1]
  if not redis.call('SET', KEYS[1], claim, 'PX', ARGV[4], 'NX') then return 'unreadable' end
  return 'claimed ' .. fence .. ' 1 0 ' .. ARGV[3] .. ' ' .. fence
end
if not ARGV[7] and string.sub(record, 1, 2) == '12' and string.sub(record, 27, 58) == ARGV[2] then
  return #record < 2048 and record or 'completed 0'
end

-- [record.lua]

if not readable(record) then return 'unreadable' end

local found = state(record)
if found ~= COMPLETED then
  local own = owner(record) == ARGV[1]
  if own and found == FAILED or notes(record, ARGV[1]) then return 'lost' end
  if own then return claimed(fence(record), attempt(record), history(record), lease_end(record) - now(), operation(record)) end
end
local free = found == FAILED and fingerprint(record) == string.rep('\0', 32)
if free and attempt(record) == 0 and (ARGV[8] or KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1) then return 'expired' end
if not free and fingerprint(record) ~= ARGV[2] then return 'mismatch ' .. fingerprint(record) end
if found == COMPLETED then
  local left = string.format('completed %.0f', ARGV[7] and redis.call('PTTL', KEYS[1]) or 0)
  return #record < 2048 and left .. ' ' .. record or left
end

local past, waiting = '0', '0'
if found == STARTED then
  local left = lease_end(record) - now()
  if left > 0 then
    if ARGV[6] ~= '0' then redis.pcall('SETRANGE', KEYS[1], '3', ARGV[6]) end -- a full server refuses: a slow check then
    return string.format('in-progress %.0f', left)
  end
  if ARGV[5] ~= '1' and tonumber(ARGV[5]) ~= fence(record) then return string.format('unknown %.0f', fence(record)) end
  past, waiting = '1', waiters(record)
end
if found == FAILED and not free then past = history(record) == '1' and '1' or '2' end

local time = now()
local next_fence, next_attempt = math.max(fence(record) + 1, time), math.min(attempt(record) + 1, 999999)
local fence_text = string.format('%016.0f', next_fence)
local next_operation, owners = (free or string.sub(record, 5, 10) == '000000') and fence_text or operation(record), noted(record)
if found == FAILED and not notes(record, owner(record)) then owners = string.sub(owners .. owner(record), -256) end
local header = '1' .. STARTED .. past .. waiting .. string.format('%06d', next_attempt) .. fence_text .. ARGV[2]
local lease = string.format('%016.0f', time + ARGV[3])
redis.call('SET', KEYS[1], header .. lease .. ARGV[1] .. next_operation .. owners, 'PX', ARGV[4])
return claimed(next_fence, next_attempt, past, tonumber(ARGV[3]), next_operation)
