package command

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Help of a command with many flags shows about a dozen, and all of them, each once, when it is asked to.
func TestHelpOfManyFlagsShowsTheUsualOnesOrAllInGroups(t *testing.T) {
	d := disk(t)
	for _, command := range []string{"train", "plan", "tune", "bench schedule", "import csv"} {
		c, _, err := newRoot(&app{fs: vfs.NewMem()}, "").Find(strings.Fields(command))
		if err != nil {
			t.Fatal(err)
		}
		usual, all := must(t, d, command+" --help").stdout, must(t, d, command+" --help-all").stdout
		_, all, _ = strings.Cut(all, "\nUsage:")
		shown := 0
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == helpAllFlag {
				return
			}
			line := regexp.MustCompile(`(?m)^ +(-., +)?--` + f.Name + " ")
			shown += len(line.FindAllString(usual, -1))
			if n := len(line.FindAllString(all, -1)); n != 1 {
				t.Errorf("%s --help-all shows --%s %d times", command, f.Name, n)
			}
		})
		if shown < 8 || shown > 18 || !strings.Contains(usual, command+" --help-all shows") {
			t.Errorf("%s --help shows %d flags:\n%s", command, shown, usual)
		}
	}
}
