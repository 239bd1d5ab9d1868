// Package noquery keeps bubbletea from asking the terminal for its background when a program
// starts. It does so for each command, not only for top. It waits 5 seconds for an answer, which
// some terminals do not give. top has no colours that depend on it.
package noquery

import "os"

var term, had = os.LookupEnv("TERM")

// A terminal of this kind is not asked. Packages are initialized in the order of their paths, each
// as soon as its imports are. This one needs os alone. Its path is before os/exec, which bubbletea
// needs.
func init() { _ = os.Setenv("TERM", "dumb") }

// Done brings TERM back. The package that imports bubbletea calls it when it is initialized.
func Done() {
	if !had {
		_ = os.Unsetenv("TERM")
		return
	}
	_ = os.Setenv("TERM", term)
}
