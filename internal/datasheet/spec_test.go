package datasheet_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestSpec compares every table of SPEC.md with the package, both ways.
func TestSpec(t *testing.T) {
	text, src := readSpec(t), packageSource(t)
	for _, p := range checkSpec(text, src) {
		t.Error("SPEC.md: " + p)
	}
	if n := len(src.constants); n < 150 {
		t.Errorf("found only %d constants in the package", n)
	}
}

// TestSpecComparisonSeesMistakes spoils SPEC.md in one place at a time.
func TestSpecComparisonSeesMistakes(t *testing.T) {
	text, src := readSpec(t), packageSource(t)
	for _, tt := range []struct{ name, old, new, want string }{
		{"constant without a row", "| 13 | `OpConnectRequest` | CONNECT_REQUEST | `ConnectRequestBody` | `ConnectedReply` | answer, timeout, abort |\n", "", "OpConnectRequest is in no table"},
		{"row without a constant", "| 0 | `OpNop` |", "| 0 | `OpNothing` |", "OpNothing is no constant"},
		{"wrong value", "| 0x0004 | `ControlImmediate` |", "| 0x0008 | `ControlImmediate` |", "ControlImmediate"},
		{"value that is no number", "| 0x0004 | `ControlImmediate` |", "| four | `ControlImmediate` |", `"four" is not a number`},
		{"constant twice", "| 0 | `OpNop` |", "| 15 | `OpAbort` |", "OpAbort is also in line"},
		{"wrong bit", "| 4 | 0x10 | `FrameChecksum` |", "| 5 | 0x10 | `FrameChecksum` |", "bit 5"},
		{"wrong name", "| connection lost |", "| lost connection |", "EventConnectionLost"},
		{"wrong field offset", "| 20 | 4 | Immediate |", "| 24 | 4 | Immediate |", "ControlSegment"},
		{"wrong field size", "| 12 | 2 | SegCount |", "| 12 | 4 | SegCount |", "ControlSegment"},
		{"missing field", "| 60 | 4 | Checksum | CRC-32C, or zero |\n", "", "Header"},
		{"wrong layout size", "Layout `Token`, 16 bytes:", "Layout `Token`, 32 bytes:", "Token"},
		{"missing layout", "Layout `Completion`, 16 bytes:", "Entries:", "Completion has no table"},
		{"wrong access", "| CONTROL | `RegControl` | WO |", "| CONTROL | `RegControl` | RW |", "CONTROL"},
		{"wrong reset value", "| `RegClockResolution` | RO | 100 |", "| `RegClockResolution` | RO | 10 |", "CLOCK_RESOLUTION"},
		{"wrong register offset", "| 0x14 | STATUS |", "| 0x18 | STATUS |", "RegStatus"},
		{"wrong counter offset", "| 17 | 0xa8 |", "| 17 | 0xb0 |", "CounterCompletions"},
		{"wrong access to a hook's register", "| 0x100 | HOOK_0_RUNS_LOW | RO |", "| 0x100 | HOOK_0_RUNS_LOW | RW |", "HOOK_0_RUNS_LOW"},
		{"wrong name of a fault", "| wrong digest |", "| bad digest |", "ProcessorFaultDigest"},
		{"wrong command body", "| `CQBody` | - | at once |", "| `EndpointReply` | - | at once |", "EndpointReply"},
		{"ragged table", "| 0 | `OpNop` | NOP |", "| 0 | `OpNop` |", "cells in a table"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Count(text, tt.old) == 0 {
				t.Fatalf("SPEC.md does not contain %q", tt.old)
			}
			problems := checkSpec(strings.Replace(text, tt.old, tt.new, 1), src)
			if !strings.Contains(strings.Join(problems, "\n"), tt.want) {
				t.Errorf("problems %q do not mention %q", problems, tt.want)
			}
		})
	}
}

func readSpec(t *testing.T) string {
	t.Helper()
	b := must.Get(os.ReadFile("../../descriptors/SPEC.md"))(t)
	return string(b)
}

func packageSource(t *testing.T) *source {
	t.Helper()
	return must.Get(loadSource())(t)
}

// checkSpec returns what is wrong with text.
func checkSpec(text string, src *source) []string {
	tables, err := parseTables(text)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	checkConstants(tables, src, problem)
	checkLayouts(tables, src, problem)
	checkRegisters(tables, problem)
	checkCommands(tables, src, problem)
	if want := fmt.Sprintf("`% x`", EtherType[:]); !strings.Contains(text, want) {
		problem("EtherType %s is not mentioned", want)
	}
	return problems
}

// nameOf is the text of a constant of a type that has one.
func nameOf[T interface {
	~uint8 | ~uint16 | ~uint32 | ~int
	fmt.Stringer
}](v uint64) string {
	return strings.TrimPrefix(T(v).String(), "not done, ")
}

// names are those types.
var names = map[string]func(v uint64) string{
	"Opcode": nameOf[Opcode], "Result": nameOf[Result], "EventCode": nameOf[EventCode], "FrameType": nameOf[FrameType], "Kind": nameOf[Kind],
	"Reliability": nameOf[Reliability], "State": nameOf[State], "DMAEngine": nameOf[DMAEngine], "DMAState": nameOf[DMAState],
	"DMAPolicy": nameOf[DMAPolicy], "ProcessorState": nameOf[ProcessorState], "ProcessorFault": nameOf[ProcessorFault],
	"MailboxResult": nameOf[MailboxResult], "Counter": nameOf[Counter], "Status": nameOf[Status],
}

// checkConstants compares tables with a Constant column: each constant of the
// package stands in exactly one row, with its value, bit and name.
func checkConstants(tables []table, src *source, problem func(string, ...any)) {
	seen := map[string]int{}
	for _, t := range tables {
		if !t.has("Constant") {
			continue
		}
		valueColumn := "Value"
		if !t.has(valueColumn) {
			valueColumn = "Offset"
		}
		for _, r := range t.rows {
			name := r.cells["Constant"]
			c, ok := src.constants[name]
			if !ok {
				problem("line %d: %s is no constant of the package", r.line, name)
				continue
			}
			if other := seen[name]; other != 0 {
				problem("line %d: %s is also in line %d", r.line, name, other)
			}
			seen[name] = r.line
			if c.value.Kind() == constant.String {
				if want := constant.StringVal(c.value); r.cells[valueColumn] != want {
					problem("line %d: %s is %q, not %q", r.line, name, want, r.cells[valueColumn])
				}
				continue
			}
			want, exact := constant.Uint64Val(c.value)
			if !exact {
				problem("line %d: %s is not a natural number", r.line, name)
			}
			v, err := r.number(valueColumn)
			if err != nil {
				problem("%v", err)
			} else if v != want {
				problem("line %d: %s is %#x, not %s", r.line, name, want, r.cells[valueColumn])
			}
			checkRow(t, r, c, want, problem)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(src.constants)) {
		if seen[name] == 0 {
			problem("constant %s is in no table", name)
		}
	}
}

// checkRow compares what a row says of a constant besides its value.
func checkRow(t table, r row, c declaration, value uint64, problem func(string, ...any)) {
	if t.has("Bit") {
		if bit, err := r.number("Bit"); err != nil {
			problem("%v", err)
		} else if value != 1<<bit {
			problem("line %d: %s is %#x, which is not bit %d", r.line, c.name, value, bit)
		}
	}
	if text := names[c.typ]; text != nil && t.has("Name") {
		if want := text(value); r.cells["Name"] != want {
			problem("line %d: %s is called %q, not %q", r.line, c.name, want, r.cells["Name"])
		}
	}
	if c.typ == "Counter" && t.has("Offset") {
		if at, err := r.number("Offset"); err != nil {
			problem("%v", err)
		} else if want := RegCounterBase + 8*value; at != want {
			problem("line %d: %s stands at %#x, not %#x", r.line, c.name, want, at)
		}
	}
}

var layoutCaption = regexp.MustCompile("^Layout `(\\w+)`, (\\d+) bytes:$")

// checkLayouts compares tables under a "Layout" caption with the structs: each
// has a table with all of its fields, reserved ones included.
func checkLayouts(tables []table, src *source, problem func(string, ...any)) {
	seen := map[string]bool{}
	for _, t := range tables {
		m := layoutCaption.FindStringSubmatch(t.caption)
		if m == nil {
			continue
		}
		name := m[1]
		seen[name] = true
		v, ok := layouts[name]
		if !ok {
			problem("line %d: %s is no layout of the package", t.line, name)
			continue
		}
		typ := reflect.TypeOf(v)
		if c, ok := src.constants[sizeConstant(name)]; ok && c.value.ExactString() != m[2] {
			problem("line %d: %s says that %s takes %s bytes", t.line, c.name, name, c.value)
		}
		if size := strconv.Itoa(int(typ.Size())); m[2] != size {
			problem("line %d: %s takes %s bytes, not %s", t.line, name, size, m[2])
		}
		var want, got []string
		for f := range reflectFields(typ) {
			field := strings.TrimPrefix(f.Name, "_")
			if field == "" || field == "Reserved" {
				field = "reserved"
			}
			want = append(want, fmt.Sprintf("%d %d %s", f.Offset, f.Type.Size(), field))
		}
		for _, r := range t.rows {
			field := r.cells["Field"]
			if field == "Reserved" {
				field = "reserved"
			}
			got = append(got, fmt.Sprintf("%s %s %s", r.cells["Offset"], r.cells["Size"], field))
		}
		if !slices.Equal(want, got) {
			problem("line %d: fields of %s are %q, not %q", t.line, name, want, got)
		}
	}
	for _, name := range src.layouts {
		if !seen[name] {
			problem("layout %s has no table", name)
		}
		if _, ok := layouts[name]; !ok {
			problem("layout %s is missing in the tests' list", name)
		}
	}
}

// sizeConstant is the name of the constant with the size of a layout, if there is one.
func sizeConstant(layout string) string {
	if layout == "Command" {
		layout = "AdminEntry"
	}
	return layout + "Size"
}

// laterElement matches registers of arrays, but not those of element 0.
var laterElement = regexp.MustCompile(`^PROC_.*_[1-9]$|^HOOK_[1-9]_`)

// checkRegisters compares tables with a Register and an Access column with the
// register table. The counters themselves are checked with their constants; of
// the arrays of the processor block, the first elements have rows.
func checkRegisters(tables []table, problem func(string, ...any)) {
	want := map[string]Register{}
	for _, r := range append(Registers(), ProcessorRegisters()...) {
		if (r.Block != BlockCounters || r.Offset < RegCounterBase) && !laterElement.MatchString(r.Name) {
			want[r.Name] = r
		}
	}
	for _, t := range tables {
		if !t.has("Register", "Access", "Reset") {
			continue
		}
		for _, r := range t.rows {
			reg, ok := want[r.cells["Register"]]
			if !ok {
				problem("line %d: no register %s, or it has two rows", r.line, r.cells["Register"])
				continue
			}
			delete(want, reg.Name)
			if r.cells["Access"] != string(reg.Access) {
				problem("line %d: access to %s is %s, not %s", r.line, reg.Name, reg.Access, r.cells["Access"])
			}
			if at, err := r.number("Offset"); err != nil {
				problem("%v", err)
			} else if at != uint64(reg.Offset) {
				problem("line %d: %s stands at %#x, not %#x", r.line, reg.Name, reg.Offset, at)
			}
			if !reg.Fixed {
				if r.cells["Reset"] != "device" {
					problem("line %d: the reset value of %s is the device's, not %s", r.line, reg.Name, r.cells["Reset"])
				}
			} else if reset, err := r.number("Reset"); err != nil {
				problem("%v", err)
			} else if reset != uint64(reg.Reset) {
				problem("line %d: the reset value of %s is %#x, not %#x", r.line, reg.Name, reg.Reset, reset)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		problem("register %s is in no table", name)
	}
}

// checkCommands checks that the bodies in the table of commands are bodies, and
// that every body is used.
func checkCommands(tables []table, src *source, problem func(string, ...any)) {
	roles := map[string][]string{"Body": src.bodies, "Reply": slices.DeleteFunc(slices.Clone(src.replies), func(name string) bool { return name == "Event" })}
	for role, bodies := range roles {
		used := map[string]bool{}
		for _, t := range tables {
			if !t.has("Constant", "Body", "Reply") {
				continue
			}
			for _, r := range t.rows {
				name := r.cells[role]
				if used[name] = true; name != "-" && !slices.Contains(bodies, name) {
					problem("line %d: %s is no %s", r.line, name, strings.ToLower(role))
				}
			}
		}
		for _, name := range bodies {
			if !used[name] {
				problem("no command has the %s %s", strings.ToLower(role), name)
			}
		}
	}
}

// declaration is an exported constant of the package as the compiler sees it.
type declaration struct {
	name string
	typ  string // name of its type, empty if untyped or predeclared
	// value is its number, or its text if it is a string.
	value constant.Value
}

// source is what the package declares.
type source struct {
	constants map[string]declaration
	layouts   []string // names of structs that start with structs.HostLayout
	// bodies and replies are the names of those that CommandBody and ReplyBody allow.
	bodies, replies []string
}

// loadSource reads the package in the current directory, without its tests. It
// compiles the standard library's part of it too, so once is enough.
var loadSource = sync.OnceValues(readSource)

func readSource() (*source, error) {
	fset := token.NewFileSet()
	entries, err := os.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
	}
	// A test that is compiled with -trimpath does not know where Go is.
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	build.Default.GOROOT = strings.TrimSpace(string(root))
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := conf.Check("datasheet", fset, files, nil)
	if err != nil {
		return nil, err
	}
	s := &source{constants: map[string]declaration{}}
	for _, name := range pkg.Scope().Names() {
		switch o := pkg.Scope().Lookup(name).(type) {
		case *types.Const:
			if !o.Exported() {
				continue
			}
			d := declaration{name: name, value: o.Val()}
			if n, ok := o.Type().(*types.Named); ok {
				d.typ = n.Obj().Name()
			}
			s.constants[name] = d
		case *types.TypeName:
			if t, ok := o.Type().Underlying().(*types.Struct); ok && t.NumFields() > 0 &&
				t.Field(0).Type().String() == "structs.HostLayout" {
				s.layouts = append(s.layouts, name)
			}
		}
	}
	slices.Sort(s.layouts)
	for role, names := range map[string]*[]string{"CommandBody": &s.bodies, "ReplyBody": &s.replies} {
		union := pkg.Scope().Lookup(role).Type().Underlying().(*types.Interface).EmbeddedType(0).(*types.Union)
		for i := range union.Len() {
			*names = append(*names, union.Term(i).Type().(*types.Named).Obj().Name())
		}
	}
	return s, nil
}
