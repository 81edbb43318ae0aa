package plan

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// pictured is how many masters a picture shows: the busiest ones.
const pictured = 16

// The geometry of a picture, in pixels. Three columns of bars are beside the labels of the masters, and one axis of time is below.
const (
	pictureWidth = 860
	nodeWidth    = 75
	columnWidth  = 262
	barWidth     = 132
	labelWidth   = 170
	rowHeight    = 18
	barHeight    = 12
	topSpace     = 62
	timeWidth    = 440
	timeHeight   = 186
)

// The colours of bars. The ground is white, so that a page with a dark ground shows the picture like any other one.
const (
	blue      = "#1f6feb"
	lightBlue = "#79b8ff"
	red       = "#cf222e"
	lightRed  = "#ff8182"
)

// picture is the text of an SVG.
type picture struct{ strings.Builder }

func (p *picture) text(x, y float64, anchor, text string) {
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
}

func (p *picture) bar(x, y, width float64, colour string) {
	fmt.Fprintf(p, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y, width, barHeight, colour)
}

// limit draws a vertical line.
func (p *picture) limit(x, from, to float64) {
	fmt.Fprintf(p, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="3,3"/>`+"\n", x, from, x, to, red)
}

// Picture returns an SVG of what the busiest masters have to do, and of what is lost with one.
func (c Cluster) Picture() string {
	nodes, loss := c.Simulate()
	shown := busiest(nodes, pictured)
	rows := topSpace + float64(len(shown)*rowHeight)
	var p picture
	fmt.Fprintf(&p, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="12">`+"\n", pictureWidth, int(rows)+timeHeight)
	p.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	p.text(10, 20, "start", c.headline(nodes))
	for i, column := range c.columns() {
		column.draw(&p, nodeWidth+float64(i*columnWidth), nodes, shown)
	}
	for row, i := range shown {
		p.text(nodeWidth-10, topSpace+float64(row*rowHeight)+barHeight-2, "end", fmt.Sprintf("node %d", i+1))
	}
	if len(nodes) > len(shown) {
		p.text(10, rows+barHeight, "start", fmt.Sprintf("and %d more, which are less busy", len(nodes)-len(shown)))
	}
	c.drawLoss(&p, rows+40, loss)
	return p.String() + "</svg>\n"
}

// column is bars of one kind, one for each master.
type column struct {
	title  string
	limit  float64 // where a vertical line stands; 0: none
	values func(Node) []float64
	label  func(Node) string
}

// columns returns what a picture shows of a master.
func (c Cluster) columns() []column {
	return []column{
		{"new keys and replays a second", 0, func(n Node) []float64 { return []float64{n.New, n.Replays} },
			func(n Node) string { return grouped(int(n.New)) + " + " + grouped(int(n.Replays)) }},
		{fmt.Sprintf("CPU, limit %.3g%%", 100*c.Busy), c.Busy, func(n Node) []float64 { return []float64{n.CPU} },
			func(n Node) string { return fmt.Sprintf("%.0f%%", 100*n.CPU) }},
		{"memory, limit " + Approximate(c.Memory), float64(c.Memory), func(n Node) []float64 { return []float64{float64(n.Memory)} },
			func(n Node) string { return Approximate(n.Memory) }},
	}
}

// draw draws the bars of a column, to scale with the longest of all masters or with the limit.
func (c column) draw(p *picture, x float64, nodes []Node, shown []int) {
	longest := c.limit
	for _, n := range nodes {
		longest = max(longest, sum(c.values(n)))
	}
	p.text(x, topSpace-12, "start", c.title)
	for row, i := range shown {
		y, at := topSpace+float64(row*rowHeight), x
		for k, value := range c.values(nodes[i]) {
			width := barWidth * value / longest
			p.bar(at, y, width, []string{blue, lightBlue}[k])
			at += width
		}
		p.text(x+barWidth+6, y+barHeight-2, "start", c.label(nodes[i]))
	}
	if c.limit > 0 {
		p.limit(x+barWidth*c.limit/longest, topSpace-6, topSpace+float64(len(shown)*rowHeight))
	}
}

func sum(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

// drawLoss draws for how long who notices that a master is lost, below y.
func (c Cluster) drawLoss(p *picture, y float64, lost Loss) {
	end := max(time.Duration(lost.Longest), time.Duration(lost.Retries.Longest))
	width := func(d time.Duration) float64 { return timeWidth * d.Seconds() / end.Seconds() }
	at := func(d time.Duration) float64 { return labelWidth + width(d) }
	row := func(i int) float64 { return y + 30 + float64(i*24) }
	label := func(i int, name string, ends time.Duration, what string) {
		p.text(labelWidth-10, row(i)+barHeight-2, "end", name)
		p.text(at(ends)+4, row(i)+barHeight-2, "start", what)
	}
	p.text(10, y, "start", fmt.Sprintf("If node %d is lost, who gets 503, in seconds after that:", lost.Node+1))
	shortest, longest, retried := time.Duration(lost.Shortest), time.Duration(lost.Longest), time.Duration(lost.Retries.Longest)
	p.bar(at(0), row(0), width(shortest), red)
	p.bar(at(shortest), row(0), width(longest-shortest), lightRed)
	label(0, "requests of its keys", longest, fmt.Sprintf("%s, %s at most", lost.outage(), grouped(lost.Refused)))
	elsewhere := c.Outage.elsewhere()
	elected := max(elsewhere, longest-c.Outage.afterElection())
	if elsewhere == 0 {
		elected = 0
	}
	p.bar(at(elected-elsewhere), row(1), width(elsewhere), red)
	label(1, "requests of other keys", elected, c.noticedElsewhere(lost))
	p.bar(at(0), row(2), width(retried), blue)
	label(2, "a client that tries again", retried, fmt.Sprintf("%v, %d attempts at most", lost.Retries.Longest, lost.Retries.Attempts))
	for second := time.Duration(0); second <= end; second += tickOf(end) {
		p.text(at(second), row(3)+10, "middle", fmt.Sprintf("%.4g", second.Seconds()))
	}
	p.text(10, row(4)+16, "start", c.lostRecords(lost))
}

// noticedElsewhere says what requests of other keys notice.
func (c Cluster) noticedElsewhere(lost Loss) string {
	if c.Outage.elsewhere() == 0 {
		return "none"
	}
	return fmt.Sprintf("%v, until a replica is elected: %s", c.Outage.elsewhere(), grouped(lost.Elsewhere))
}

// tickOf returns the distance of the numbers on an axis of time: so that there are 4 to 10 of them.
func tickOf(end time.Duration) time.Duration {
	tick := 10 * time.Millisecond
	for i := 0; end/tick > 10; i++ {
		tick = tick * []time.Duration{2, 5, 2}[i%3] / []time.Duration{1, 2, 1}[i%3] // 10, 20, 50, 100, ...
	}
	return tick
}
