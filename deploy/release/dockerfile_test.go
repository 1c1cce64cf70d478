package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
)

// image is the result of the last stage of the Dockerfile.
type image struct {
	copies             map[string]string // from a path in the build stage to a path in the image
	user               int
	entrypoint, health []string
}

// readDockerfile reads the last stage. It fails the test at an instruction that it does not
// know, because the test would run a different image.
func readDockerfile(t *testing.T) image {
	t.Helper()
	text, err := os.ReadFile("../docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	_, last, found := strings.Cut(joined, "FROM scratch\n")
	if !found {
		t.Fatal("the last stage of the Dockerfile does not start from scratch")
	}
	i := image{copies: map[string]string{}}
	for line := range strings.Lines(last) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "COPY" && len(words) == 4 && words[1] == "--from=build":
			i.copies[words[2]] = words[3]
		case words[0] == "USER":
			uid, _, _ := strings.Cut(words[1], ":")
			if i.user, err = strconv.Atoi(uid); err != nil || i.user == 0 {
				t.Fatalf("USER %s: want a number that is not root's", words[1])
			}
		case words[0] == "ENTRYPOINT":
			i.entrypoint = jsonWords(t, line)
		case words[0] == "HEALTHCHECK":
			i.health = jsonWords(t, line)
		case words[0] == "LABEL", words[0] == "EXPOSE", words[0] == "CMD":
		default:
			t.Fatalf("the test does not know %q", strings.TrimSpace(line))
		}
	}
	return i
}

// jsonWords reads the command at the end of a line, which must not need a shell.
func jsonWords(t *testing.T, line string) (words []string) {
	t.Helper()
	at := strings.Index(line, "[")
	if at < 0 || json.Unmarshal([]byte(line[at:]), &words) != nil || len(words) == 0 {
		t.Fatalf("%q: want a list of words, because there is no shell", strings.TrimSpace(line))
	}
	return words
}
