package cli_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
)

// asTrapeze in the environment has the test's binary run as trapeze.
const asTrapeze = "TRAPEZE_TEST_AS_PROGRAM"

// runAsTrapeze ends the process as trapeze would, if it is to be trapeze.
func runAsTrapeze() {
	if os.Getenv(asTrapeze) != "" {
		os.Exit(cli.Program.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
}

// shells say how each completes a line, without packages or settings of the user: what may
// follow is printed in lines.
var shells = map[string]struct {
	args   []string
	script string
}{
	"bash": {[]string{"--norc", "--noprofile", "-c"}, `source <(trapeze completion bash)
COMP_LINE=$LINE COMP_POINT=${#LINE} COMP_TYPE=9
_trapeze
printf '%s\n' "${COMPREPLY[@]}"`},
	"fish": {[]string{"--no-config", "-c"}, `trapeze completion fish | source; complete -C "$LINE"`},
	// zsh completes at a terminal only.
	"zsh": {[]string{"-f", "-c"}, `zmodload zsh/zpty
zpty -b z zsh -f -i
zpty -w z 'PS1= RPS1=; autoload compinit; compinit -u -D; source <(trapeze completion zsh); bindkey "^I" complete-word; unsetopt auto_menu; bindkey "^X" accept; done-here() { print -r -- "<<$BUFFER>>"; exit }; zle -N done-here; bindkey "^G" done-here; print rea""dy'
zpty -r z reply $'*ready*'
zpty -w -n z "$LINE"$'\t\a'
zpty -r z reply $'*<<*>>*'
print -r -- ${${reply##*<<}%%>>*}`},
}

// TestShells: the scripts complete inside quotes, after an ampersand there, and values behind
// an equals sign, with nothing but the shell.
func TestShells(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asTrapeze, self)
	if err := os.WriteFile(filepath.Join(dir, "trapeze"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for number, name := range slices.Sorted(maps.Keys(shells)) {
		shell := shells[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skip("there is no " + name)
			}
			lines := map[string]map[string]string{
				"trapeze rec":                                       {"": "recv", "zsh": "trapeze recv"},
				"trapeze recv --device 'emu:?wi":                    {"": "emu:?wire=", "zsh": "trapeze recv --device 'emu:?wire="},
				`trapeze recv --device "emu:?wi`:                    {"": "emu:?wire=", "zsh": `trapeze recv --device "emu:?wire=`},
				"trapeze recv --device 'emu:?wire=mem:a&pe":         {"": "emu:?wire=mem:a&peer=", "zsh": "trapeze recv --device 'emu:?wire=mem:a&peer="},
				`trapeze recv --device emu:\?wire=mem:a\&pe`:        {"": "emu:?wire=mem:a&peer=", "bash": `a\&peer=`, "zsh": `trapeze recv --device emu:\?wire=mem:a\&peer=`},
				"trapeze recv --device='emu:?wi":                    {"": "--device=emu:?wire=", "bash": "emu:?wire=", "zsh": `trapeze recv --device=emu:\?wire=`},
				"trapeze conform --section la":                      {"": "layout", "zsh": "trapeze conform --section layout"},
				"trapeze channel ping --device 'x y' --priority hi": {"": "high", "zsh": "trapeze channel ping --device 'x y' --priority high"},
			}
			for i, line := range slices.Sorted(maps.Keys(lines)) {
				if i%len(shells) != number && !soak.Wanted() {
					continue // each line is for one shell
				}
				text := cmp.Or(lines[line][name], lines[line][""])
				c := exec.CommandContext(t.Context(), path, append(shell.args, shell.script)...)
				c.Env = append(os.Environ(), "LINE="+line, "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "TERM=dumb")
				out, err := c.Output()
				var offered []string
				for l := range strings.SplitSeq(string(out), "\n") {
					word, _, _ := strings.Cut(strings.TrimRight(l, " \r'\""), "\t")
					offered = append(offered, word)
				}
				if err != nil || !slices.Contains(offered, strings.TrimRight(text, "'\"")) {
					t.Errorf("%s: %q (%v), without %q", line, out, err, text)
				}
			}
		})
	}
}
