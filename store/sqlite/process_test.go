package sqlite_test

var parts = map[string]func(string) int{}
