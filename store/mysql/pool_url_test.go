package mysql

import (
	"strings"
	"testing"
)

// A program of an earlier version, which knows only the former name, may use the same URL.
func TestTheFormerNameOfAParameterStillWorks(t *testing.T) {
	for _, name := range []string{"tusk_one_node", "tusk_allow_galera"} {
		config, oneNode, err := parse("mysql://u:p@h/d?" + name + "=1&timeout=5s")
		if err != nil || !oneNode || config.Params[name] != "" {
			t.Errorf("%s: %v, %v", name, oneNode, err)
		}
		if _, oneNode, err = parse("mysql://u:p@h/d?" + name + "=0"); err != nil || oneNode {
			t.Errorf("%s=0: %v, %v", name, oneNode, err)
		}
		if _, _, err = parse("mysql://u:p@h/d?" + name + "=true"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=true: %v", name, err)
		}
	}
}
