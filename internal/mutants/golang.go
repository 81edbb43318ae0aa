package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// goDirs are the packages in which mistakes are made, as patterns for filepath.Glob below the root of the repository.
var goDirs = []string{
	"core", "core/driver", "core/consumer", "core/capture", "core/internal/*", "core/redisstore",
	"adapters/http", "adapters/gin", "adapters/echo", "adapters/fiber", "adapters/client",
	"adapters/internal/attempts", "adapters/internal/echoadapter", "adapters/internal/fiberadapter",
}

// insertion is text before and after a part of a file. Its start and end are offsets in the source, in bytes.
type insertion struct {
	start, end     int
	prefix, suffix string
}

// goFile collects the mutants of one file. function is the name of the declaration that inspect is in, for the IDs, and signature
// that of the innermost function, which tells what a return statement may return. All files share next, so that a number is that
// of one mutant of all packages.
type goFile struct {
	path       string
	source     []byte
	fset       *token.FileSet
	function   string
	signature  *ast.FuncType
	next       *int
	mutants    []mutant
	insertions []insertion
}

// readGoFile finds the mutants of a file. next is the last number that is taken.
func readGoFile(path string, next *int) (*goFile, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &goFile{path: path, source: source, fset: token.NewFileSet(), next: next}
	file, err := parser.ParseFile(f.fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		if decl, ok := decl.(*ast.FuncDecl); ok && decl.Body != nil {
			f.function, f.signature = functionName(decl), decl.Type
			f.inspect(decl.Body)
		}
	}
	return f, nil
}

// functionName returns the name as design.md writes it, for example run.settle.
func functionName(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return decl.Name.Name
	}
	receiver := decl.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.IndexListExpr:
			receiver = t.X
		case *ast.Ident:
			return t.Name + "." + decl.Name.Name
		default:
			return decl.Name.Name
		}
	}
}

// inspect finds the mutants below a node. A function literal is inspected with its own signature, since its return statements are
// not those of the function around it.
func (f *goFile) inspect(root ast.Node) {
	ast.Inspect(root, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit:
			outer := f.signature
			f.signature = node.Type
			f.inspect(node.Body)
			f.signature = outer
			return false
		case *ast.IfStmt:
			f.condition(node.Cond, "if")
		case *ast.ForStmt:
			if node.Cond != nil {
				f.add(node.Cond, "for never", "(", ") && !mutantOn(%d)")
			}
		case *ast.BinaryExpr:
			f.binary(node)
		case *ast.BlockStmt:
			f.statements(node.List)
		case *ast.CaseClause:
			for _, condition := range node.List {
				f.caseCondition(condition)
			}
			f.statements(node.Body)
		case *ast.CommClause:
			f.statements(node.Body)
		}
		return true
	})
}

// condition makes a condition that never holds, and one that always does. The operand stays in the expression, so what it calls
// is still called, and the compiler finds no unused variable.
func (f *goFile) condition(cond ast.Expr, kind string) {
	f.add(cond, kind+" never", "(", ") && !mutantOn(%d)")
	f.add(cond, kind+" always", "(", ") || mutantOn(%d)")
}

// caseCondition does so for a case that is a condition. Other cases are values or types, of which the syntax tree alone does not
// say the type: a comparison, a negation and a call of package errors are surely conditions.
func (f *goFile) caseCondition(cond ast.Expr) {
	switch c := cond.(type) {
	case *ast.BinaryExpr:
		if c.Op.Precedence() > token.EQL.Precedence() { // such as +, whose result is no condition
			return
		}
		f.condition(cond, "case")
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			f.condition(cond, "case")
		}
	case *ast.CallExpr:
		if strings.HasPrefix(f.text(c.Fun), "errors.") {
			f.condition(cond, "case")
		}
	}
}

// binary removes operands of && and ||, and moves bounds by one. An operand is removed by making it what the operator ignores:
// true for &&, false for ||. The mutant of a bound also holds, or no longer holds, when both sides are equal; that may evaluate
// both sides twice. The outer parentheses keep the mutant one operand of the expression around it.
func (f *goFile) binary(b *ast.BinaryExpr) {
	switch b.Op {
	case token.LAND:
		f.add(b.X, "without", "((", ") || mutantOn(%d))")
		f.add(b.Y, "without", "((", ") || mutantOn(%d))")
	case token.LOR:
		f.add(b.X, "without", "((", ") && !mutantOn(%d))")
		f.add(b.Y, "without", "((", ") && !mutantOn(%d))")
	case token.LSS, token.GTR:
		f.add(b, "bound", "((", fmt.Sprintf(") || mutantOn(%%d) && %s == %s)", f.text(b.X), f.text(b.Y)))
	case token.LEQ, token.GEQ:
		f.add(b, "bound", "((", fmt.Sprintf(") && !(mutantOn(%%d) && %s == %s))", f.text(b.X), f.text(b.Y)))
	}
}

// statements removes statements, one at a time, and changes what is returned. Declarations stay, since what follows would not
// compile without them, and so does panic, after which a function may lack a return.
func (f *goFile) statements(list []ast.Stmt) {
	for _, stmt := range list {
		switch s := stmt.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && f.text(call.Fun) != "panic" {
				f.remove(s)
			}
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				f.remove(s)
			}
		case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
			f.remove(s)
		case *ast.BranchStmt:
			if s.Tok == token.CONTINUE || s.Tok == token.BREAK {
				f.remove(s)
			}
		case *ast.ReturnStmt:
			f.returned(s)
		}
	}
}

// remove notes a mutant without the statement s. A defer statement may stand in the block that this makes: what it defers still
// runs at the end of the function.
func (f *goFile) remove(s ast.Stmt) { f.add(s, "removed", "if !mutantOn(%d) { ", " }") }

// returned makes a function return no error, and the opposite of a condition. It looks at the last result only, where Go programs
// have errors and conditions.
func (f *goFile) returned(s *ast.ReturnStmt) {
	if len(s.Results) == 0 || f.signature.Results == nil {
		return
	}
	last := s.Results[len(s.Results)-1]
	types := f.signature.Results.List
	lastType := f.text(types[len(types)-1].Type)
	whole := len(s.Results) == f.signature.Results.NumFields() // not the results of one call
	if lastType == "error" && whole && f.text(last) != "nil" {
		results := string(f.source[f.offset(s.Results[0].Pos()):f.offset(last.Pos())])
		f.add(s, "no error", "if mutantOn(%d) { return "+results+"nil }; ", "")
	}
	if lastType == "bool" && whole {
		f.add(last, "opposite", "(", ") != mutantOn(%d)")
	}
}

// add notes a mutant: a node with text before and after it. %d in the texts stands for the number of the mutant. The numbers
// begin with 1, because 0 is what an empty $MUTANT is read as, which enables none. The ID has the source of the node on one line,
// up to 100 bytes.
func (f *goFile) add(node ast.Node, kind, prefix, suffix string) {
	*f.next++
	number := fmt.Sprint(*f.next)
	prefix, suffix = strings.ReplaceAll(prefix, "%d", number), strings.ReplaceAll(suffix, "%d", number)
	text := strings.Join(strings.Fields(f.text(node)), " ")
	if len(text) > 100 {
		text = text[:100]
	}
	f.mutants = append(f.mutants, mutant{id: fmt.Sprintf("%s %s: %s: %s", f.path, f.function, kind, text), file: f.path, number: *f.next})
	f.insertions = append(f.insertions, insertion{f.offset(node.Pos()), f.offset(node.End()), prefix, suffix})
}

// offset returns the offset of a position in the source, in bytes.
func (f *goFile) offset(pos token.Pos) int { return f.fset.Position(pos).Offset }

// text returns the source of a node.
func (f *goFile) text(node ast.Node) string {
	return string(f.source[f.offset(node.Pos()):f.offset(node.End())])
}

// mutated returns the file with all its mutants. Insertions around the same node are nested, the first one outermost. Texts at
// one offset are sorted by their rank: ends come before starts, because a node that ends here is not around one that starts here.
func (f *goFile) mutated() []byte {
	type point struct{ offset, rank int }
	at := map[point]string{}
	var points []point
	for i, in := range f.insertions { // Ranks of starts are positive, those of ends negative. No file has 1<<20 insertions.
		start, end := point{in.start, 1 << 40}, point{in.end, 0}
		start.rank += i
		end.rank = -(i + 1) - (in.start << 20) // what begins later ends earlier
		at[start], at[end] = in.prefix, in.suffix
		points = append(points, start, end)
	}
	slices.SortFunc(points, func(a, b point) int {
		if a.offset != b.offset {
			return a.offset - b.offset
		}
		return a.rank - b.rank
	})
	var out strings.Builder
	done := 0
	for _, p := range points {
		out.Write(f.source[done:p.offset])
		out.WriteString(at[p])
		done = p.offset
	}
	out.Write(f.source[done:])
	return []byte(out.String())
}

// switchFile is added to each package with mutants. $MUTANT enables one of them; $MUTANT_TRACE names a file to which the
// numbers of those are written that are executed.
const switchFile = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var mutantEnabled, _ = strconv.Atoi(os.Getenv("MUTANT"))
var mutantTrace, _ = os.OpenFile(os.Getenv("MUTANT_TRACE"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
var mutantSeen [%d]atomic.Bool

func mutantOn(number int) bool {
	if mutantTrace != nil && !mutantSeen[number].Swap(true) {
		mutantTrace.WriteString(strconv.Itoa(number) + "\n")
	}
	return number == mutantEnabled
}
`

// sourceFiles returns the Go files of a package without its tests.
func sourceFiles(dir string) (files []string) {
	all, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, file := range all {
		if !strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
	}
	return files
}
