package format

import (
	"strings"
	"testing"
)

// The place of a fault in JSON is that in the file, though the members are read one by one.
func TestDamagedJSONIsNamedByItsPlace(t *testing.T) {
	const text = "{\n  \"name\": \"x\",\n  \"files\": [{\"a\": 1}],\n  \"end\": 1\n}\n"
	for damaged, want := range map[string]string{
		strings.Replace(text, "\"name\":", "\"name\"::", 1): "line 2, column 10: this is not JSON",
		strings.Replace(text, "1}]", "1]", 1):               "line 3, column 20: this is not JSON",
		strings.Replace(text, "x\",", "x\",,", 1):           "line 2, column 15: this is not JSON",
		text[:20]: "line 3, column 3: this is not JSON",
	} {
		if _, err := members([]byte(damaged)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", damaged, err, want)
		}
	}
}
