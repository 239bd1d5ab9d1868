package conform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/script"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// play is one run of a case of a script: a World, and what the case has given names to.
type play struct {
	*World
	names    map[string]reflect.Value
	contexts map[string]context.Context
	cancels  map[string]context.CancelFunc
	begun    map[string]chan outcome
	texts    map[string]string
	events   chan via.AsyncError
	brief    time.Duration
	printed  string
	over     bool // the rest of the case does nothing
}

// outcome is the result of a call.
type outcome struct {
	values []reflect.Value // without the error
	err    error
	said   string // by a command
}

func newPlay(w *World) *play {
	p := &play{names: map[string]reflect.Value{}, contexts: map[string]context.Context{}, cancels: map[string]context.CancelFunc{},
		begun: map[string]chan outcome{}, texts: map[string]string{}}
	elsewhere := 0 // a NIC of another process cannot have memory of this one's own
	if w.A.Query().Backend == "vfio-user" {
		elsewhere = 1
	}
	for name, v := range map[string]any{
		"ring.Listen": ring.Listen, "ring.Dial": ring.Dial, "ring.NewCaller": ring.NewCaller, "via.Dial": via.Dial,
		"channel.Listen": channel.Listen, "channel.Dial": channel.Dial, "channel.NewPages": channel.NewPages,
		"heap": make([]byte, 4096), "page": os.Getpagesize(), "elsewhere": elsewhere, "longest": strings.Repeat("x", via.MaxDiscriminator), "long": strings.Repeat("x", via.MaxDiscriminator+1),
	} {
		p.names[name] = reflect.ValueOf(v)
	}
	p.use(w)
	return p
}

var mentioned = regexp.MustCompile(`@[a-z]+`)

// use makes the NICs of w those of the script.
func (p *play) use(w *World) {
	p.World = w
	for name, nic := range map[string]*via.NIC{"a": w.A, "b": w.B} {
		p.names[name] = reflect.ValueOf(nic)
		p.names["at-"+name] = reflect.ValueOf(via.Address{MAC: nic.Query().Address})
	}
}

// script runs a case, each combination of its values as a part of the check.
func (w *World) script(c script.Case) {
	some := false
	out, all := c.Run(func(name string, commands script.Play) (out string, ran bool) {
		run := func(w *World) {
			p := newPlay(w)
			out = commands(p.command)
			ran = !p.over
		}
		if name == c.Name {
			run(w)
		} else {
			w.part(name, run)
		}
		some = some || ran
		return out, ran
	})
	// If some have been left out, it is not known what the others print, unless it is the same.
	if out != c.Want && (all || some && !strings.HasPrefix(c.Want, "[")) {
		w.Errorf("it prints\n%swant\n%s", out, c.Want)
	}
}

// command carries out a command of a case.
func (p *play) command(words []string) (out string) {
	ended := false
	defer func() {
		if !ended {
			p.Errorf("after\n%sfailed: %s", p.printed, strings.Join(words, " "))
		}
	}()
	if words[0] != script.End && !p.over {
		out = p.do(words)
	}
	if ended = true; out != "" {
		p.printed += out + "\n"
	}
	return out
}

// do carries out a command. Several tries of a call stand between slashes. let NAME TEXT gives text a name,
// which stands as @NAME in later commands.
func (p *play) do(words []string) string {
	if words[0] == "let" {
		p.texts["@"+words[1]] = strings.Join(words[2:], " ")
		return ""
	}
	words = strings.Fields(mentioned.ReplaceAllStringFunc(strings.Join(words, " "), func(name string) string { return p.texts[name] }))
	if f, ok := changes[words[0]]; ok {
		f(p, script.Parse(words[1:]))
		return ""
	}
	if f, ok := prints[words[0]]; ok {
		return f(p, script.Parse(words[1:]))
	}
	if f := prints[words[min(2, len(words)-1)]]; words[0] == "go" && f != nil {
		done := make(chan outcome, 1)
		p.begun[words[1]] = done
		go func() { done <- outcome{said: f(p, script.Parse(words[3:]))} }()
		return ""
	}
	i := slices.Index(words, "/")
	if i < 0 {
		return p.line(words)
	}
	var lines []string
	for try := range strings.SplitSeq(strings.Join(words[i+1:], " "), "/") {
		if line := p.line(append(slices.Clone(words[:i]), strings.Fields(try)...)); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// line carries out a call, and prints its error. What stands before the call is NAME =, or
//
//	in CONTEXT      the call gets that context: none, over, brief, soon, or one that command context has made
//	go NAME         the call goes on meanwhile: see join
//	await           it is repeated until it says something else than that nothing is done, there is no room, or none waits
//	maybe CODE      an error of that text is as good as none
//	says CODE       it fails with that error, and it does not matter what else that is
//	fails           which error it is does not matter
//	ended           its error also says how the connection has ended
func (p *play) line(words []string) string {
	label := strings.Join(words, " ")
	var into []string
	var kind, background, allowed, wanted string
	var again, fails, ended bool
	takes := map[string]*string{"in": &kind, "go": &background, "maybe": &allowed, "says": &wanted}
	flags := map[string]*bool{"await": &again, "fails": &fails, "ended": &ended}
	for {
		if len(words) > 2 && words[1] == "=" {
			into, words = script.Span(words[0]), words[2:]
			label = strings.Join(words, " ")
		} else if v := takes[words[0]]; v != nil {
			*v, words = words[1], words[2:]
		} else if f := flags[words[0]]; f != nil {
			*f, words = true, words[1:]
		} else {
			break
		}
	}
	p.brief = 30 * time.Millisecond
	call := p.bind(kind, words)
	if background != "" {
		done := make(chan outcome, 1)
		p.begun[background] = done
		go func() { done <- p.repeat(label, again, call) }()
		return ""
	}
	o := p.repeat(label, again, call)
	// On a busy machine a short time may be over before anything was asked.
	for kind == "brief" && errors.Is(o.err, context.DeadlineExceeded) && !errors.Is(o.err, via.ErrTimeout) && p.brief < Timeout/2 {
		p.brief *= 10
		o = p.repeat(label, again, p.bind(kind, words))
	}
	switch {
	case o.err == nil:
		for i, name := range into {
			p.names[name] = o.values[i]
		}
		if wanted != "" {
			return label + " does not fail"
		}
		return ""
	case says(o.err, strings.ReplaceAll(cmp.Or(allowed, wanted), "-", " ")):
		return ""
	case fails:
		return label
	}
	line := label + ": " + sayError(o.err)
	if ended {
		line += "; " + sayEnd(o.err)
	}
	if len(o.values) > 0 && o.values[0].CanInt() {
		line += fmt.Sprintf(", after %d", o.values[0].Int())
	}
	return line
}

// repeat makes a call, if again is true until something has come of it.
func (p *play) repeat(label string, again bool, call func() outcome) (o outcome) {
	o = call()
	waits := func() bool {
		return again && (o.err == via.ErrNotDone || o.err == via.ErrQueueFull || errors.Is(o.err, via.ErrNoMatch))
	}
	if waits() {
		p.Until(label, func() bool {
			o = call()
			return !waits()
		})
	}
	return o
}

// context returns a context for a call.
func (p *play) context(kind string) context.Context {
	switch kind {
	case "":
		return Context(p)
	case "none":
		return nil
	case "over":
		ctx, cancel := context.WithDeadline(p.Context(), time.Now())
		p.Cleanup(cancel)
		return ctx
	case "brief":
		ctx, cancel := context.WithTimeout(p.Context(), p.brief)
		p.Cleanup(cancel)
		return ctx
	case "soon":
		ctx, cancel := context.WithCancel(Context(p))
		time.AfterFunc(20*time.Millisecond, cancel)
		return ctx
	}
	ctx := p.contexts[kind]
	if ctx == nil {
		p.Fatalf("there is no context %q", kind)
	}
	return ctx
}

var (
	contextType = reflect.TypeFor[context.Context]()
	errorType   = reflect.TypeFor[error]()
)

// bind makes a call of a method or a function with arguments by their types. Those that are missing are
// zero, or nil; FIELD=VALUE sets fields of a struct.
func (p *play) bind(kind string, words []string) (call func() outcome) {
	f := p.callee(words[0])
	a := script.Parse(words[1:])
	var in []reflect.Value
	for i := range f.Type().NumIn() {
		t := f.Type().In(i)
		switch {
		case t == contextType:
			v := reflect.New(t).Elem()
			if ctx := p.context(kind); ctx != nil {
				v.Set(reflect.ValueOf(ctx))
			}
			in = append(in, v)
			continue
		case t.Kind() == reflect.Struct:
			v := reflect.New(t).Elem()
			if len(a.Words) > 0 {
				if named, ok := p.names[a.Words[0]]; ok && named.Type() == t {
					v.Set(named)
					a.Words = a.Words[1:]
				}
			}
			p.change(v, a)
			in = append(in, v)
			continue
		case len(a.Words) == 0:
			in = append(in, reflect.Zero(t))
			continue
		}
		in = append(in, p.parse(t, a.Words[0]))
		a.Words = a.Words[1:]
	}
	if len(a.Words) > 0 || len(a.Changes) > 0 {
		p.Fatalf("%s takes no %v %v", words[0], a.Words, a.Changes)
	}
	return func() (o outcome) {
		for _, v := range f.Call(in) {
			if v.Type() != errorType {
				o.values = append(o.values, v)
			} else if !v.IsNil() {
				o.err = v.Interface().(error)
			}
		}
		return o
	}
}

// change sets fields of a struct, and takes those changes out.
func (p *play) change(v reflect.Value, a *script.Arguments) {
	a.Changes = slices.DeleteFunc(a.Changes, func(c script.Change) bool {
		field, err := script.Field(v, c.Path)
		switch {
		case err != nil:
		case field.CanUint():
			field.SetUint(c.Of(field.Uint(), p.number(c.Value)))
		default:
			field.Set(p.parse(field.Type(), c.Value))
		}
		return err == nil
	})
}

// callee finds the function that a path leads to.
func (p *play) callee(path string) reflect.Value {
	if f, ok := p.names[path]; ok {
		return f
	}
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		p.Fatalf("there is no command %q", path)
	}
	of := p.value(path[:i])
	m := of.MethodByName(path[i+1:])
	if e, ok := of.Interface().(*End); ok && !m.IsValid() {
		m = reflect.ValueOf(e.VI).MethodByName(path[i+1:])
	}
	if !m.IsValid() {
		p.Fatalf("%v has no method %q", of.Type(), path[i+1:])
	}
	return m
}

// value finds what a path such as x.Memory.Handle or y.Recv.0 leads to, through fields, elements, and
// methods without arguments. Those of an End's VI are the End's too. FROM:TO behind it in brackets cuts bytes out.
func (p *play) value(path string) reflect.Value {
	path, part, cut := strings.Cut(strings.TrimSuffix(path, "]"), "[")
	names := strings.Split(path, ".")
	v, ok := p.names[names[0]]
	if !ok {
		p.Fatalf("%q is not known", path)
	}
	for _, name := range names[1:] {
		if e, ok := v.Interface().(*End); ok && !reflect.ValueOf(e).Elem().FieldByName(name).IsValid() {
			v = reflect.ValueOf(e.VI)
		}
		if m := v.MethodByName(name); m.IsValid() {
			var in []reflect.Value
			if m.Type().NumIn() == 1 {
				in = append(in, reflect.ValueOf(Context(p)))
			}
			out := m.Call(in)
			if err, _ := out[len(out)-1].Interface().(error); err != nil {
				p.Fatalf("%s: %v", path, err)
			}
			v = out[0]
			continue
		}
		v = Must(script.Field(reflect.Indirect(v), name))(p)
	}
	if cut {
		from, to, _ := strings.Cut(part, ":")
		v = v.Slice(int(p.number(from)), int(p.number(to)))
	}
	return v
}

// object is the value of a path that has to be of a type.
func object[V any](p *play, path string) V {
	v, ok := p.value(path).Interface().(V)
	if !ok {
		p.Fatalf("%s is no %v", path, reflect.TypeFor[V]())
	}
	return v
}

// parse reads a value of a type.
func (p *play) parse(t reflect.Type, word string) reflect.Value {
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Bool:
		v.SetBool(word == "true")
	case reflect.String:
		if named, ok := p.names[word]; ok && named.Kind() == reflect.String {
			word = named.String()
		} else if strings.Contains(word, ".") {
			word = p.say(p.value(word))
		}
		v.SetString(strings.Trim(word, `"`))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(p.number(word)))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(p.number(word))
	case reflect.Func:
		if word != "nil" {
			v.Set(p.handler(t, word))
		}
	case reflect.Slice:
		switch {
		case word == "nil":
		case t.Elem().Kind() == reflect.Uint8:
			v.Set(p.value(word))
		default:
			for _, name := range script.Span(word) {
				v = reflect.Append(v, p.parse(t.Elem(), name))
			}
		}
	default:
		if word != "nil" {
			named := p.value(word)
			if e, ok := named.Interface().(*End); ok && t != named.Type() {
				named = reflect.ValueOf(e.VI)
			}
			v.Set(named)
		}
	}
	return v
}

// handler is a function that keeps what it was called with, under a name.
type handler struct {
	mu     sync.Mutex
	calls  [][]reflect.Value
	inside atomic.Int32
}

func (p *play) handler(t reflect.Type, name string) reflect.Value {
	if _, ok := p.names[name]; !ok {
		p.names[name] = reflect.ValueOf(new(handler))
	}
	h := object[*handler](p, name)
	return reflect.MakeFunc(t, func(in []reflect.Value) []reflect.Value {
		if h.inside.Add(1) != 1 {
			p.Errorf("handler %s is called twice at a time", name)
		}
		h.mu.Lock()
		h.calls = append(h.calls, in)
		h.mu.Unlock()
		h.inside.Add(-1)
		return nil
	})
}

var constants = map[string]uint64{
	"Unreliable": uint64(via.Unreliable), "ReliableDelivery": uint64(via.ReliableDelivery), "ReliableReception": uint64(via.ReliableReception),
	"AllFrames": uint64(via.AllFrames), "NoPayload": ^uint64(0), "MessageSize": ring.MessageSize, "HeaderSize": datasheet.HeaderSize,
}

// number is the value of an expression of numbers, constants and paths, see script.Number.
func (p *play) number(expression string) uint64 {
	return script.Number(expression, func(word string) uint64 {
		if n, err := strconv.ParseUint(word, 0, 64); err == nil {
			return n
		}
		if n, ok := constants[word]; ok {
			return n
		}
		switch v := p.value(word); {
		case v.CanInt():
			return uint64(v.Int())
		case v.CanUint():
			return v.Uint()
		default:
			p.Fatalf("%s is no number", word)
			return 0
		}
	})
}
