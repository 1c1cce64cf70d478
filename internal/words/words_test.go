package words

import "testing"

func TestAChoiceIsAsASentenceHasIt(t *testing.T) {
	for want, words := range map[string][]string{
		"": nil, "skip": {"skip"}, "skip or once": {"skip", "once"}, "skip, rerun or once": {"skip", "rerun", "once"},
	} {
		if got := Either(words); got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
}

func TestTheNearestWordIsOffered(t *testing.T) {
	known := []string{"queue", "kind", "retryable", "tasks"}
	for word, want := range map[string]string{"quue": "queue", "qeueu": "queue", "KIND": "kind", "retriable": "retryable",
		"task": "tasks", "zzz": "", "": ""} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
