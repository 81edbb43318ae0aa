// Package report keeps measured figures in a file, and renders docs/PERFORMANCE.md and its pictures from them.
package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// Results are all measured figures, by the name of their part.
type Results map[string]*Part

// Part is what one measurement found.
type Part struct {
	Origin Origin `json:"origin"`
	Rows   []Row  `json:"rows"`
}

// Origin says when, of what, and on what a part was measured.
type Origin struct {
	Date    string `json:"date"`
	Commit  string `json:"commit"`
	Machine string `json:"machine"`
	Server  string `json:"server"`
	Go      string `json:"go"`
}

// Row has the figures of one subject in one case. The names of figures end in their unit, other than ratios and counts.
type Row struct {
	Name    []string           `json:"name"` // from the general to the special
	Figures map[string]float64 `json:"figures"`
}

// Load reads results from a file.
func Load(file string) (Results, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := Results{}
	return r, json.Unmarshal(text, &r)
}

// Save writes results to a file, each row on a line, so that a new measurement reads well as a difference.
// It rounds figures to four digits after the point.
func (r Results) Save(file string) error {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		origin, err := json.Marshal(r[name].Origin)
		if err != nil {
			return err
		}
		var rows []string
		for _, row := range r[name].Rows {
			for figure, value := range row.Figures {
				row.Figures[figure] = math.Round(1e4*value) / 1e4
			}
			text, err := json.Marshal(row)
			if err != nil {
				return fmt.Errorf("%s %v: %w", name, row.Name, err)
			}
			rows = append(rows, string(text))
		}
		parts = append(parts, fmt.Sprintf("%q: {\"origin\": %s, \"rows\": [\n%s\n]}", name, origin, strings.Join(rows, ",\n")))
	}
	return os.WriteFile(file, []byte("{\n"+strings.Join(parts, ",\n")+"\n}\n"), 0o644)
}

// Figure returns the figure of a row with a name.
func (r Row) Figure(name string) (float64, error) {
	value, ok := r.Figures[name]
	if !ok {
		return 0, fmt.Errorf("the results of %q have no figure %q", r.Name, name)
	}
	return value, nil
}

// Rows returns the rows of a part whose names begin with some words.
func (r Results) Rows(part string, prefix ...string) (rows []Row, err error) {
	if r[part] == nil {
		return nil, fmt.Errorf("there is no part %s", part)
	}
	for _, row := range r[part].Rows {
		if len(row.Name) >= len(prefix) && slices.Equal(row.Name[:len(prefix)], prefix) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// Figure returns one figure: names are the part, the whole name of a row, and the name of the figure. It fails if there is none.
func (r Results) Figure(names ...string) (float64, error) {
	last := len(names) - 1
	rows, err := r.Rows(names[0], names[1:last]...)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if len(row.Name) == last-1 {
			return row.Figure(names[last])
		}
	}
	return 0, fmt.Errorf("the results have no row %q", names[:last])
}
