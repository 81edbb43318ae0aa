package redisstore

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-idem/idem/core/driver"
)

// scanBatch is how many keys a SCAN visits, and how many records are then read in one pipeline. A server takes about 10 µs for
// each record.
const scanBatch = 100

// Look implements driver.Inspector. One script reads the record, its tombstone and the number of its steps at one moment.
func (s *Store) Look(ctx context.Context, name [32]byte) (driver.Record, error) {
	seen, _, err := s.look(ctx, name)
	return seen, err
}

// look is Look, and also returns the time of the server.
func (s *Store) look(ctx context.Context, name [32]byte) (driver.Record, time.Time, error) {
	q := s.inspectQuery(lookScript, name)
	if err := s.sendWhole(ctx, q); err != nil {
		return driver.Record{}, time.Time{}, err
	}
	return parseLook(name, q.reply)
}

// Forget implements driver.Inspector. It pauses first, since the fence of a native claim counts in ms: so the next one is
// greater than that of the claim that was seen. The script compares the version, which has the state and the fence, in the
// same step in which it deletes.
func (s *Store) Forget(ctx context.Context, seen driver.Record) error {
	pause(ctx, 2*time.Millisecond)
	q := s.inspectQuery(forgetScript, seen.Name)
	q.durableStatus = "ok"
	version, _ := hex.DecodeString(seen.Version) // what is no version is not equal to any
	q.args = append(q.args, version)
	if err := s.sendWhole(ctx, q); err != nil {
		return storeError(err)
	}
	return statusError(q.status())
}

// Steps implements driver.Inspector.
func (s *Store) Steps(ctx context.Context, name [32]byte) (map[string][]byte, error) {
	q := s.inspectQuery(lookScript, name)
	q.args = append(q.args, "1")
	if err := s.sendWhole(ctx, q); err != nil {
		return nil, err
	}
	values, err := q.reply.Slice()
	if len(values) < 7 { // there are no steps, or an error
		return nil, err
	}
	fields, _ := values[6].([]any)
	steps := map[string][]byte{}
	for pair := range slices.Chunk(fields, 2) {
		name, _ := pair[0].(string)
		if name == "" || name == "\x00" || len(pair) < 2 { // fields that say whose results these are: see lua/results.lua
			continue
		}
		result, _ := pair[1].(string)
		steps[stepOf(name)] = []byte(result)
	}
	return steps, nil
}

// Outcome implements driver.OutcomeReader. It reads with GET, because Lua is slow with long outcomes, and restarts no
// retention.
func (s *Store) Outcome(ctx context.Context, name [32]byte) ([]byte, error) {
	record, err := s.longRecord(ctx, &driver.Claim{Key: name}, &query{name: s.recordName(name)})
	if err != nil {
		return nil, storeError(err)
	}
	if !isCompleted(record) {
		return nil, nil
	}
	return []byte(record[headerLength:]), nil
}

// sendWhole sends a query whose keys cannot be split. While their slot moves in a Cluster, it sends the query again: the
// error of the last try says so.
func (s *Store) sendWhole(ctx context.Context, q *query) error {
	err := s.send(ctx, q)
	for tries := 1; isSplitSlot(err) && tries <= maxRedirects; tries++ {
		pause(ctx, time.Duration(tries)*redirectPause)
		err = s.send(ctx, q)
	}
	return err
}

// inspectQuery returns a query with the record and all that lies beside it.
func (s *Store) inspectQuery(script *script, name [32]byte) *query {
	return s.newQuery(script, &driver.Claim{Key: name}, tombstoneSuffix, stepsSuffix)
}

// Scan implements driver.Inspector. It visits all keys of each master with SCAN, also those of other programs, and reads the
// records among them in pipelines. The error for a client of another type wraps [errors.ErrUnsupported], since Scan cannot
// know its masters. A scan is not atomic. SCAN promises to find each key that is there all the time, some of them twice. A
// record of a Cluster that moves during the scan may be found on two masters, or on none. So Scan returns an error at its end if
// slots have moved or a master has been replaced meanwhile, or if a slot is on its way.
func (s *Store) Scan(ctx context.Context, filter driver.Filter, found func(driver.Record) bool) error {
	scan := &scan{store: s, filter: filter, found: found}
	switch client := s.client.(type) {
	case *redis.Client:
		return scan.node(ctx, client)
	case *redis.ClusterClient:
		return scan.cluster(ctx, client)
	}
	return fmt.Errorf("idem: redisstore: Scan needs a *redis.Client or *redis.ClusterClient, not a %T: %w", s.client, errors.ErrUnsupported)
}

// scan is one call of Scan. Its functions are called by one goroutine for each master.
type scan struct {
	store  *Store
	filter driver.Filter
	found  func(driver.Record) bool

	mu     sync.Mutex // for found, since the masters of a Cluster are scanned side by side
	isOver bool       // found has returned false
}

// errSlotsMoved says that a scan may have missed records.
var errSlotsMoved = errors.New("idem: redisstore: slots moved between the masters during the scan, or a master was replaced, " +
	"so records may be missing: scan again when no slot moves")

// cluster scans all masters of a Cluster, side by side.
func (n *scan) cluster(ctx context.Context, client *redis.ClusterClient) error {
	before, err := layout(ctx, client)
	if err != nil {
		return err
	}
	err = client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return n.node(ctx, node) })
	if isSplitSlot(err) {
		return errSlotsMoved
	}
	if err != nil || n.wantsNoMore() {
		return err
	}
	after, err := layout(ctx, client)
	if err == nil && (before != after || strings.Contains(after, "[")) {
		return errSlotsMoved
	}
	return err
}

// layout returns which master of a Cluster has which slots. Each is asked for its own: only the source and the target of a slot
// know that it is on its way, and say so in brackets.
func layout(ctx context.Context, client *redis.ClusterClient) (string, error) {
	var mu sync.Mutex
	var masters []string
	err := client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		nodes, err := node.ClusterNodes(ctx).Result()
		for line := range strings.Lines(nodes) {
			// The fields are the ID, the address, flags, five others, and the slots.
			if f := strings.Fields(line); len(f) > 8 && strings.Contains(f[2], "myself") {
				mu.Lock()
				masters = append(masters, f[0]+" "+strings.Join(f[8:], " "))
				mu.Unlock()
			}
		}
		return err
	})
	slices.Sort(masters)
	return strings.Join(masters, "\n"), err
}

// node scans one server. All its cursors are sent over one connection: another server, which took the place of the first one
// meanwhile, has its keys in another order.
func (n *scan) node(ctx context.Context, node *redis.Client) error {
	conn := node.Conn()
	defer conn.Close()
	var cursor uint64
	for {
		keys, next, err := conn.Scan(ctx, cursor, n.pattern(), scanBatch).Result()
		if err == nil {
			err = n.read(ctx, node, n.entries(keys))
		}
		if err != nil || next == 0 || n.wantsNoMore() {
			return err
		}
		cursor = next
	}
}

// pattern returns the glob pattern of the keys that can belong to selected records. The server compares each key that it
// visits with it, so keys of others cost no traffic.
func (n *scan) pattern() string {
	pattern := globEscaper.Replace(n.store.prefix) + "{"
	if len(n.filter.Scope) == driver.ScopeBytes {
		pattern += base64.RawURLEncoding.EncodeToString(n.filter.Scope) + "."
	}
	return pattern + "*"
}

// globEscaper makes text match itself alone in a glob pattern.
var globEscaper = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, `\`, `\\`)

// entry is a key that a SCAN has found: of a record, or of a tombstone whose record may be gone.
type entry struct {
	name        [32]byte
	isTombstone bool
}

// entries returns what these keys, which match the pattern, are, without those that are neither.
func (n *scan) entries(keys []string) (all []entry) {
	for _, key := range keys {
		text, isTombstone := strings.CutSuffix(key, tombstoneSuffix)
		text, isClosed := strings.CutSuffix(strings.TrimPrefix(text, n.store.prefix+"{"), "}")
		if name, ok := driver.ParseRecordName(text); isClosed && ok {
			all = append(all, entry{name, isTombstone})
		}
	}
	return all
}

// read reads records in one pipeline and calls found for those that are selected. A tombstone counts if there is no record,
// which the SCAN finds by a key of its own.
func (n *scan) read(ctx context.Context, node redis.UniversalClient, entries []entry) error {
	pipeline, queries := node.Pipeline(), make([]*query, len(entries))
	for i := range entries {
		queries[i] = n.store.inspectQuery(lookScript, entries[i].name)
		_ = pipeline.Process(ctx, queries[i].newCommand(ctx))
	}
	_, _ = pipeline.Exec(ctx) // each command keeps its own error
	for i, q := range queries {
		seen, now, err := parseLook(entries[i].name, q.reply)
		// Only send knows what to do with these errors, so such a record is read once more, alone. The first batch of a
		// server that does not know the script is read so.
		if redis.HasErrorPrefix(err, "NOSCRIPT") || isRedirect(err) || isSplitSlot(err) {
			seen, now, err = n.store.look(ctx, entries[i].name)
		}
		if err != nil {
			return err
		}
		if entries[i].isTombstone == (seen.State == driver.Expired) {
			n.visit(&seen, now)
		}
	}
	return nil
}

// visit calls found for a record that is selected.
func (n *scan) visit(seen *driver.Record, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.isOver && n.filter.Selects(seen, now) {
		n.isOver = !n.found(*seen)
	}
}

// wantsNoMore reports whether found has returned false.
func (n *scan) wantsNoMore() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isOver
}

var errLookReply = errors.New("idem: look returned something else than six values")

// parseLook returns the record in the reply of lua/look.lua, and the time of the server. Only a
// readable record has more than a state and an expiry.
func parseLook(name [32]byte, reply *redis.Cmd) (seen driver.Record, now time.Time, err error) {
	values, err := reply.Slice()
	if err != nil {
		return seen, now, err
	}
	if len(values) != 6 {
		return seen, now, errLookReply
	}
	status, _ := values[0].(string)
	micros, _ := strconv.ParseInt(fmt.Sprint(values[1]), 10, 64)
	ttl, _ := values[2].(int64)
	seen = driver.Record{Name: name, State: driver.State(status), Expires: time.Duration(ttl) * time.Millisecond}
	now = time.UnixMicro(micros)
	if status != "record" {
		return seen, now, nil
	}
	length, _ := values[3].(int64)
	steps, _ := values[4].(int64)
	text, _ := values[5].(string)
	seen.Bytes, seen.Steps = int(length), int(steps)
	inspect(&seen, text, now)
	return seen, now, nil
}

// inspect fills in what the fields of a readable record say: see lua/record.lua.
func inspect(seen *driver.Record, record string, now time.Time) {
	seen.Version = hex.EncodeToString([]byte(record[1:2] + record[10:26]))
	seen.Takeover = record[2] == '1'
	seen.Attempt, _ = strconv.Atoi(record[4:10])
	copy(seen.Fingerprint[:], record[fingerprintStart:fingerprintEnd])
	if record[1] == '2' {
		seen.State = driver.Completed
		return
	}
	seen.Fence, _ = strconv.ParseInt(record[10:26], 10, 64)
	seen.ClaimedAt = time.UnixMicro(seen.Fence)
	leaseEnd, _ := strconv.ParseInt(record[58:74], 10, 64)
	remaining := time.UnixMicro(leaseEnd).Sub(now)
	switch {
	case record[1] == '4':
		seen.State, seen.Free = driver.Failed, seen.Fingerprint == [32]byte{}
		if record[3] == '2' { // the attempt was given back
			seen.Attempt--
		}
		seen.Cause = cause(record)
	case remaining > 0:
		seen.State, seen.Remaining = driver.InProgress, remaining
	default:
		seen.State, seen.Remaining = driver.Unknown, remaining
	}
}

// cause returns the cause in a FAILED record.
func cause(record string) string {
	switch {
	case record[3] != '0':
		noted, _ := strconv.Atoi(record[106:108])
		return record[108+16*noted:]
	case record[4:10] == "000001": // an earlier version wrote the record
		return record[90:]
	}
	return record[106:]
}
