package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/go-idem/idem/bench/internal/subject"
)

//go:embed report.tmpl
var text string

// Render writes PERFORMANCE.md and its pictures into a directory. It fails if the results lack a figure.
func (r Results) Render(dir string) error {
	files, err := r.pictures()
	if err != nil {
		return err
	}
	page, err := r.page()
	if err != nil {
		return err
	}
	files["PERFORMANCE.md"] = page
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// page renders PERFORMANCE.md. Template functions that find no figure end it with an error.
func (r Results) page() (string, error) {
	parsed := template.Must(template.New("report").Funcs(template.FuncMap{
		"figure": r.Figure, "rows": r.Rows, "times": times, "fixed": fixed, "grouped": grouped, "faster": r.faster,
		"subjects": shown, "cpu": r.cpu,
		"minus": func(a, b float64) float64 { return a - b },
		"ratio": func(a, b float64) float64 { return a / b },
		"list":  func(all ...string) []string { return all },
		"name":  func(row Row, i int) string { return row.Name[i] },
	}).Parse(text))
	var b bytes.Buffer
	err := parsed.Execute(&b, r)
	return b.String(), err
}

// cpu returns the CPU of a request with a new key, in µs, of all processes.
func (r Results) cpu(framework, name string) (float64, error) {
	own, err := r.Figure("loads", framework, "all new keys", name, "cpu_us")
	if err != nil {
		return 0, err
	}
	server, err := r.Figure("loads", framework, "all new keys", name, "server_cpu_us")
	return own + server, err
}

// shown returns the subjects of the table and of the picture: all of net/http, and what is special on Fiber.
func shown() []*subject.Subject {
	return slices.DeleteFunc(subject.All(), func(s *subject.Subject) bool {
		isSpecial := s.Unmarked || s.Name == subject.Redis || s.Name == subject.Memory
		return s.Name == subject.Bare || s.Framework != "http" && (s.Framework != "fiber" || !isSpecial)
	})
}

// faster says how much faster a subject is than this library and why; "" if it is not.
func (r Results) faster(s *subject.Subject) (string, error) {
	if s.Beside == "" {
		return "", nil
	}
	var where []string
	for _, w := range []struct{ workload, text string }{{"all new keys", "new keys"}, {"all replays", "replays"}} {
		rate, err := r.Figure("loads", s.Framework, w.workload, s.Name, "of_library")
		if err != nil {
			return "", err
		}
		if rate > 1 {
			where = append(where, w.text+" "+times(rate))
		}
	}
	if where == nil {
		return "", nil
	}
	return "**" + strings.Join(where, ", ") + "**: " + s.Reason, nil
}

// times formats a ratio as a factor.
func times(ratio float64) string { return fmt.Sprintf("%.2f×", ratio) }

// fixed formats a number with some digits after the point.
func fixed(digits int, number float64) string { return strconv.FormatFloat(number, 'f', digits, 64) }

// grouped formats a number as 1,234,567. It takes a number or its text.
func grouped(number any) string {
	text := fmt.Sprint(number)
	if f, ok := number.(float64); ok {
		text = fixed(0, f)
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
