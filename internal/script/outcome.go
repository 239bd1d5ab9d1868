package script

import (
	"slices"
	"strings"
)

// outcome is the output of some combinations of values.
type outcome struct {
	out    string
	chosen [][]string
}

// add enters what a combination prints.
func add(outcomes []outcome, out string, chosen []string) []outcome {
	for i := range outcomes {
		if outcomes[i].out == out {
			outcomes[i].chosen = append(outcomes[i].chosen, chosen)
			return outcomes
		}
	}
	return append(outcomes, outcome{out, [][]string{chosen}})
}

// describe prints outcomes, each behind the combinations that have it if there are several.
func describe(outcomes []outcome, variables []variable) string {
	if len(outcomes) == 1 {
		return outcomes[0].out
	}
	var b strings.Builder
	for _, o := range outcomes {
		b.WriteString("[" + label(o.chosen, variables) + "]\n")
		for line := range strings.Lines(o.out) {
			b.WriteString("  " + line)
		}
	}
	return b.String()
}

// label names combinations: by the values of each variable if they are all combinations of these,
// else one by one.
func label(chosen [][]string, variables []variable) string {
	product := 1
	var parts []string
	for i, v := range variables {
		var values []string
		for _, c := range chosen {
			if !slices.Contains(values, c[i]) {
				values = append(values, c[i])
			}
		}
		if product *= len(values); len(values) < len(v.values) {
			if strings.HasPrefix(v.name, "|") {
				parts = append(parts, strings.Join(values, " | "))
			} else {
				parts = append(parts, v.name+"="+strings.Join(values, ","))
			}
		}
	}
	if product == len(chosen) {
		return strings.Join(parts, "; ")
	}
	var all []string
	for _, c := range chosen {
		var parts []string
		for i, v := range variables {
			if len(v.values) > 1 {
				parts = append(parts, c[i])
			}
		}
		all = append(all, strings.Join(parts, " "))
	}
	return strings.Join(all, " / ")
}
