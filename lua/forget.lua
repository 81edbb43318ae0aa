-- forget: deletes a record that an operator has seen, with everything that lies beside it.
--
-- KEYS[1]  the record
-- KEYS[2]  its tombstone
-- KEYS[3]  the steps of its operation
-- ARGV[1]  the version that the operator has seen: byte 2 and bytes 11 to 26 of the record; empty if there was no record
--
-- Returns, and changes the state:
--   'ok'    FAILED, COMPLETED, or STARTED with its lease over, if the version is the same -> absent, without a tombstone;
--           absent: the tombstone is deleted
--   'lost'  another version, STARTED while its lease runs, or no record of format 1; nothing changes
--
-- A later claim has a greater fence, since a fence is the time of the claim. A Begin of a withdrawn owner that arrives later than
-- this call is no longer recognised; it gets a claim under which nothing runs, until its lease ends.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  redis.call('DEL', KEYS[2], KEYS[3])
  return 'ok'
end
local record = kind == 'string' and redis.call('GETRANGE', KEYS[1], '0', '599') or ''

-- [record.lua]

record = in_format_1(record)
if not readable(record) or state(record) .. string.sub(record, 11, 26) ~= ARGV[1] then return 'lost' end
if state(record) == STARTED and lease_end(record) > now() then return 'lost' end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
if state(record) == STARTED then wake(record) end
return 'ok'
