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
--
-- Returns, and the edge it stands for:
--   {'claimed', fence, attempt, takeover, µs left}   absent, FAILED, or STARTED with its lease over -> STARTED;
--                                                    the same answer again to the owner of a STARTED record
--   {'in-progress', µs left}    STARTED under another owner; the record remembers who waits
--   {'unknown', fence}          STARTED, lease over, no takeover allowed
--   {'completed', ms left}      COMPLETED; what is left of the retention; the outcome is read by the GET behind this script
--                               in the pipeline
--   {'mismatch'}                another fingerprint; the GET reads that, too
--   {'expired'}                 absent, but there is a tombstone: an outcome was kept, and its retention is over
--   {'lost'}                    FAILED by this very owner: this begin arrives after its own fail
--   {'unreadable'}              not a record of format 1
--
-- SET comes first of all writes: a full server that evicts nothing refuses a new claim.
local head = header()
if not head then return {'unreadable'} end
if head == '' and KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 then return {'expired'} end

local past, waiting, next_fence, next_attempt = '0', '0', 0, 1
if head ~= '' then
  local found = state(head)
  if owner(head) == ARGV[1] then
    if found == FAILED then return {'lost'} end
    if found == STARTED then
      return {'claimed', fence(head), attempt(head), history(head) == '1' and 1 or 0, lease_end(head) - now()}
    end
  end
  local free = found == FAILED and fingerprint(head) == string.rep('\0', 32)
  if not free and fingerprint(head) ~= ARGV[2] then return {'mismatch'} end
  if found == COMPLETED then return {'completed', redis.call('PTTL', KEYS[1])} end
  if found == STARTED then
    local left = lease_end(head) - now()
    if left > 0 then
      if ARGV[6] ~= '0' then redis.pcall('SETRANGE', KEYS[1], 3, ARGV[6]) end -- a full server refuses: a slow check then
      return {'in-progress', left}
    end
    if ARGV[5] ~= '1' and tonumber(ARGV[5]) ~= fence(head) then return {'unknown', fence(head)} end
    past, waiting = '1', waiters(head)
  end
  if found == FAILED and not free then past = history(head) == '1' and '1' or '2' end
  next_fence, next_attempt = fence(head) + 1, math.min(attempt(head) + 1, 999999)
end

local time = now()
next_fence = math.max(next_fence, time)
local numbers = string.format('%06d%016.0f%016.0f', next_attempt, next_fence, time + ARGV[3])
redis.call('SET', KEYS[1], '1' .. STARTED .. past .. waiting .. numbers .. ARGV[2] .. ARGV[1], 'PX', ARGV[4])
return {'claimed', next_fence, next_attempt, past == '1' and 1 or 0, tonumber(ARGV[3])}
