package main

import (
	"fmt"
	"html"
	"strings"
)

// bar is a subject in the plot, with a value for each of two workloads: new keys and replays.
type bar struct {
	label  string
	own    bool
	values []float64
}

const (
	labelWidth = 290
	plotWidth  = 480
	barHeight  = 11
	groupSpace = 9
	topSpace   = 56
)

// chart draws bars as SVG, to scale with the largest value.
func chart(bars []bar) string {
	longest := 1.0
	for _, b := range bars {
		for _, v := range b.values {
			longest = max(longest, v)
		}
	}
	scale := plotWidth / longest
	height := topSpace + len(bars)*(2*barHeight+groupSpace) + 10
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#ffffff"/>
<text x="10" y="20" font-size="14">Requests per second, as a share of the bare handler's</text>
<rect x="10" y="30" width="12" height="12" fill="#1f6feb"/><text x="27" y="40">this library, new keys</text>
<rect x="180" y="30" width="12" height="12" fill="#79b8ff"/><text x="197" y="40">replays</text>
<rect x="270" y="30" width="12" height="12" fill="#57606a"/><text x="287" y="40">others, new keys</text>
<rect x="410" y="30" width="12" height="12" fill="#afb8c1"/><text x="427" y="40">replays</text>
<line x1="%.1[3]f" y1="%[4]d" x2="%.1[3]f" y2="%[2]d" stroke="#cf222e" stroke-dasharray="3,3"/>
`, labelWidth+plotWidth+60, height, labelWidth+scale, topSpace-6)
	for i, b := range bars {
		drawGroup(&svg, b, topSpace+i*(2*barHeight+groupSpace), scale)
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// drawGroup draws the bars of one subject below y.
func drawGroup(svg *strings.Builder, b bar, y int, scale float64) {
	colours := []string{"#57606a", "#afb8c1"}
	if b.own {
		colours = []string{"#1f6feb", "#79b8ff"}
	}
	fmt.Fprintf(svg, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labelWidth-8, y+barHeight+4, html.EscapeString(b.label))
	for i, v := range b.values {
		top := y + i*barHeight
		fmt.Fprintf(svg, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, labelWidth, top, v*scale, barHeight-1, colours[i])
		fmt.Fprintf(svg, `<text x="%.1f" y="%d" font-size="10">%.2f</text>`+"\n", labelWidth+v*scale+4, top+barHeight-2, v)
	}
}
