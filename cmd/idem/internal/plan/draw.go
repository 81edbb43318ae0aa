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
	memory := 0
	for _, n := range nodes {
		memory += n.Memory
	}
	fmt.Fprintf(w, "%s new keys a second, and %s other requests; %s of records for %v.\n",
		grouped(int(c.Load.Rate)), grouped(int(c.Load.Rate*(c.requests()-1))), Approximate(memory), c.Load.Retention)
	fmt.Fprintf(w, "Masters by CPU %d, by memory %d, by network %d; here %d. Each needs a replica that is as large.\n",
		size.CPU, size.Memory, size.Network, len(nodes))
	if 2*len(nodes) > mostNodes {
		fmt.Fprintf(w, "Redis Cluster is made for at most %s nodes, replicas included: keep records for a shorter time, compress them, or have several Clusters.\n", grouped(mostNodes))
	}
	fmt.Fprintf(w, "\n%-6s %9s %11s %6s  %-20s %10s %10s %10s\n", "node", "new keys", "replays", "CPU", "", "memory", "in", "out")
	for _, i := range busiest(nodes) {
		n := nodes[i]
		bar := strings.Repeat("#", min(20, int(20*n.CPU+0.5)))
		fmt.Fprintf(w, "%-6d %9s %11s %5.0f%%  %-20s %10s %10s %10s\n", i+1, grouped(int(n.New)), grouped(int(n.Replays)), 100*n.CPU, bar,
			Approximate(n.Memory), rate(n.In), rate(n.Out))
	}
	if len(nodes) > drawn {
		fmt.Fprintf(w, "and %d more, which are less busy\n", len(nodes)-drawn)
	}
	c.explainLoss(w, loss)
}

// explainLoss prints what becomes of the requests when a master is lost.
func (c Cluster) explainLoss(w io.Writer, loss Loss) {
	fmt.Fprintf(w, "\nIf node %d is lost: for %v, until a replica has taken over, %s requests get 503.\n", loss.Node+1, c.Away, grouped(loss.Refused))
	if c.Wait {
		fmt.Fprintln(w, "No record is lost: each call waits until a replica has its write.")
		return
	}
	fmt.Fprintf(w, "Its replica is %v behind: %s claims and %s outcomes are lost, each of another key. A retry of those runs again.\n",
		c.Lag, grouped(loss.Claims), grouped(loss.Outcomes))
}

// busiest returns the indices of the nodes that Draw shows, the busiest first.
func busiest(nodes []Node) []int {
	all := make([]int, len(nodes))
	for i := range all {
		all[i] = i
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(nodes[b].CPU, nodes[a].CPU) })
	return all[:min(drawn, len(all))]
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
