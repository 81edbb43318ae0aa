package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// drawn is how many nodes Draw shows: the busiest ones.
const drawn = 5

// Draw prints how many masters the limits need, what the busiest of them have to do, and what is lost with one.
func (c Cluster) Draw(w io.Writer) {
	size := c.Size()
	nodes, loss := c.Simulate()
	fmt.Fprintln(w, c.headline(nodes))
	fmt.Fprintf(w, "Masters by CPU %d, by memory %d, by network %d; here %d. Each needs a replica that is as large.\n",
		size.CPU, size.Memory, size.Network, len(nodes))
	if 2*len(nodes) > mostNodes {
		fmt.Fprintf(w, "Redis Cluster is made for at most %s nodes, replicas included: keep records for a shorter time, compress them, or have several Clusters.\n", grouped(mostNodes))
	}
	fmt.Fprintf(w, "\n%-6s %9s %11s %6s  %-20s %10s %10s %10s\n", "node", "new keys", "replays", "CPU", "", "memory", "in", "out")
	for _, i := range busiest(nodes, drawn) {
		n := nodes[i]
		bar := strings.Repeat("#", min(20, int(20*n.CPU+0.5)))
		fmt.Fprintf(w, "%-6d %9s %11s %5.0f%%  %-20s %10s %10s %10s\n", i+1, grouped(int(n.New)), grouped(int(n.Replays)), 100*n.CPU, bar,
			Approximate(n.Memory), rate(n.In), rate(n.Out))
	}
	if len(nodes) > drawn {
		fmt.Fprintf(w, "and %d more, which are less busy\n", len(nodes)-drawn)
	}
	if c.Tenant > 0 {
		c.explainTenant(w, nodes)
	}
	c.explainLoss(w, loss)
}

// headline says what the load is.
func (c Cluster) headline(nodes []Node) string {
	return fmt.Sprintf("%s new keys a second, and %s other requests; %s of records for %v.",
		grouped(int(c.Load.Rate)), grouped(int(c.Load.Rate*(c.requests()-1))), Approximate(memoryOf(nodes)), c.Load.Retention)
}

// memoryOf returns the memory of all nodes.
func memoryOf(nodes []Node) (sum int) {
	for _, n := range nodes {
		sum += n.Memory
	}
	return sum
}

// explainLoss prints what becomes of the requests when a master is lost.
func (c Cluster) explainLoss(w io.Writer, lost Loss) {
	fmt.Fprintf(w, "\nIf node %d is lost: requests of its keys get 503 for %s, until a replica has taken over: %s at most.\n",
		lost.Node+1, lost.outage(), grouped(lost.Refused))
	if d := c.Outage.elsewhere(); d > 0 {
		fmt.Fprintf(w, "With cluster-require-full-coverage yes, the default, those of other keys get 503 for %v of that, until it is elected: %s.\n",
			d, grouped(lost.Elsewhere))
	} else {
		fmt.Fprintln(w, "With cluster-require-full-coverage no, requests of other keys notice nothing.")
	}
	fmt.Fprintln(w, lost.Retries.explain())
	fmt.Fprintln(w, c.lostRecords(lost))
}

// lostRecords says which records are lost with a master.
func (c Cluster) lostRecords(lost Loss) string {
	if c.Wait {
		return "No record is lost: each call waits until a replica has its write."
	}
	return fmt.Sprintf("Its replica is %v behind: %s claims and %s outcomes are lost, each of another key. A retry of those runs again.",
		c.Lag, grouped(lost.Claims), grouped(lost.Outcomes))
}

// outage says how long requests are refused.
func (l Loss) outage() string {
	if l.Shortest == l.Longest {
		return l.Longest.String()
	}
	return fmt.Sprintf("%v to %v", l.Shortest, l.Longest)
}

// explain says what a client sees that sends refused requests again.
func (r Retries) explain() string {
	seen := fmt.Sprintf("A client that tries again as adapters/client does sends a request of its keys up to %d times, %.1f on average, and waits for up to %v.",
		r.Attempts, r.Mean, r.Longest)
	if r.GivenUp > 0 {
		seen += fmt.Sprintf(" After a minute it gives up, with %.0f%% of them.", 100*r.GivenUp)
	}
	return seen
}

// explainTenant prints what a big tenant has of each master.
func (c Cluster) explainTenant(w io.Writer, nodes []Node) {
	least, most := 1.0, 0.0
	for _, n := range nodes {
		least, most = min(least, n.Tenant/n.New), max(most, n.Tenant/n.New)
	}
	fmt.Fprintf(w, "A tenant with %.4g%% of all new keys has %.1f%% to %.1f%% of those of each master, and %s of records in all.\n",
		100*c.Tenant, 100*least, 100*most, Approximate(int(c.Tenant*float64(memoryOf(nodes)))))
}

// busiest returns the indices of at most n nodes, the busiest first.
func busiest(nodes []Node, n int) []int {
	all := make([]int, len(nodes))
	for i := range all {
		all[i] = i
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(nodes[b].CPU, nodes[a].CPU) })
	return all[:min(n, len(all))]
}

// rate formats bits per second.
func rate(bits float64) string {
	unit := "bit/s"
	for _, next := range []string{"kbit/s", "Mbit/s", "Gbit/s"} {
		if bits < 1000 {
			break
		}
		bits, unit = bits/1000, next
	}
	return fmt.Sprintf("%.3g %s", bits, unit)
}
