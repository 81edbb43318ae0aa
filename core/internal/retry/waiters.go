package retry

// waiter is an attempt that waits for a slot.
type waiter struct {
	granted  chan struct{} // closed when the attempt has its slot
	attempts int           // that its commit has had before
	order    int           // of arrival
	index    int           // in waiters; -1 when it has left them
}

// waiters is a heap. Commits with the fewest attempts come first, so that those of a shard that is unavailable do not delay the
// others.
type waiters []*waiter

// Len implements sort.Interface.
func (w waiters) Len() int { return len(w) }

// Less implements sort.Interface.
func (w waiters) Less(i, j int) bool {
	return w[i].attempts < w[j].attempts || w[i].attempts == w[j].attempts && w[i].order < w[j].order
}

// Swap implements sort.Interface.
func (w waiters) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

// Push implements heap.Interface.
func (w *waiters) Push(x any) {
	x.(*waiter).index = len(*w)
	*w = append(*w, x.(*waiter))
}

// Pop implements heap.Interface.
func (w *waiters) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last], *w = nil, (*w)[:last]
	x.index = -1
	return x
}
