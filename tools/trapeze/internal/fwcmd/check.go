package fwcmd

import (
	"context"
	"errors"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
)

// checked is the JSON output of check.
type checked struct {
	File     string        `json:"file"`
	Accepted bool          `json:"accepted"`
	Hooks    []checkedHook `json:"hooks"`
}

type checkedHook struct {
	Hook         string            `json:"hook"`
	Instructions int               `json:"instructions"`
	WorstCase    int               `json:"worst_case_instructions,omitempty"`
	Budget       int               `json:"budget_instructions"`
	Stack        int               `json:"stack_bytes"`
	Refusal      *firmware.Refusal `json:"refusal,omitempty"`
}

func (x *commands) check(_ context.Context, _ *cmdtable.NoFlags, args []string) error {
	img, err := Open(args[0])
	if err != nil {
		return err
	}
	hooks, refused := verdicts(img.spec)
	r := checked{File: args[0], Accepted: len(refused) == 0, Hooks: hooks}
	err = x.Report(&r)
	return errors.Join(append([]error{err}, refused...)...)
}

// verdicts checks an image and returns a refusal of each program that has one.
func verdicts(s *firmware.Spec) (hooks []checkedHook, refused []error) {
	hooks = []checkedHook{}
	for _, v := range s.Check() {
		p, _ := s.Program(v.Hook)
		h := checkedHook{Hook: v.Hook.String(), Instructions: int(p.Instructions.Size() / 8), WorstCase: v.Report.WorstCase,
			Budget: v.Hook.Budget(), Stack: v.Report.Stack}
		if v.Err != nil {
			refused = append(refused, v.Err)
			errors.As(v.Err, &h.Refusal) // it is always one
		}
		hooks = append(hooks, h)
	}
	return hooks, refused
}
