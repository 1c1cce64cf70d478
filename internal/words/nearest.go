package words

import "strings"

// Nearest returns the candidate that was probably meant by a misspelt word, or "" if none is
// near.
func Nearest(word string, candidates []string) string {
	word = strings.ToLower(word)
	if len(word) > 64 {
		return ""
	}
	best, found := max(1, (len(word)+1)/3)+1, ""
	for _, c := range candidates {
		if d := distance(word, strings.ToLower(c)); d < best {
			best, found = d, c
		}
	}
	return found
}

// distance counts the letters to insert, delete, replace or swap (Damerau-Levenshtein).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// Hinted adds the hint for a misspelt word to a text.
func Hinted(text, word string, candidates []string) string {
	if hint := DidYouMean(word, candidates); hint != "" {
		return text + "; " + hint
	}
	return text
}

// DidYouMean returns a hint for a misspelt word, or "" if no candidate is near.
func DidYouMean(word string, candidates []string) string {
	if found := Nearest(word, candidates); found != "" {
		return "did you mean " + found + "?"
	}
	return ""
}
