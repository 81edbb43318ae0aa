package report

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// chart is a picture of bars.
type chart struct {
	title  string
	series []string // the names of the values of each group
	unit   string   // follows each value
	mark   float64  // where a vertical line stands; 0: none
	groups []group
}

// group is the bars of one label. Own groups have the colours of this library.
type group struct {
	label  string
	own    bool
	values []float64
}

// The geometry of a chart, in pixels.
const (
	labelWidth = 330
	plotWidth  = 440
	barHeight  = 11
	groupSpace = 9
	topSpace   = 56
)

// The colours of a series: this library's bars are blue, others are grey.
var (
	ownColours   = []string{"#1f6feb", "#79b8ff", "#c8e1ff"}
	otherColours = []string{"#57606a", "#8c959f", "#d0d7de"}
)

// svg draws the chart, to scale with its largest value.
func (c chart) svg() string {
	longest := c.mark
	for _, g := range c.groups {
		longest = max(longest, slices.Max(g.values))
	}
	scale := plotWidth / longest
	groupHeight := len(c.series)*barHeight + groupSpace
	width, height := labelWidth+plotWidth+70, topSpace+len(c.groups)*groupHeight+10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+
		`<text x="10" y="20" font-size="14">%s</text>`+"\n", html.EscapeString(c.title))
	for i, name := range c.series {
		x := 10 + i*190
		fmt.Fprintf(&b, `<rect x="%d" y="30" width="12" height="12" fill="%s"/><rect x="%d" y="30" width="12" height="12" fill="%s"/>`,
			x, ownColours[i], x+14, otherColours[i])
		fmt.Fprintf(&b, `<text x="%d" y="40">%s</text>`+"\n", x+31, html.EscapeString(name))
	}
	if c.mark > 0 {
		fmt.Fprintf(&b, `<line x1="%.1[1]f" y1="%[2]d" x2="%.1[1]f" y2="%[3]d" stroke="#cf222e" stroke-dasharray="3,3"/>`+"\n",
			labelWidth+c.mark*scale, topSpace-6, height)
	}
	for i, g := range c.groups {
		g.draw(&b, topSpace+i*groupHeight, scale, c.unit)
	}
	return b.String() + "</svg>\n"
}

// draw draws the bars of a group below y.
func (g group) draw(b *strings.Builder, y int, scale float64, unit string) {
	colours := otherColours
	if g.own {
		colours = ownColours
	}
	middle := y + len(g.values)*barHeight/2 + 4
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labelWidth-8, middle, html.EscapeString(g.label))
	for i, v := range g.values {
		top := y + i*barHeight
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, labelWidth, top, v*scale, barHeight-1, colours[i])
		fmt.Fprintf(b, `<text x="%.1f" y="%d" font-size="10">%.2f%s</text>`+"\n", labelWidth+v*scale+4, top+barHeight-2, v, unit)
	}
}
