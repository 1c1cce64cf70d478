package cli

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlFile reads tusk.yaml. It records the line of each value, and finds keys that occur twice.
type yamlFile struct {
	path        string
	environment map[string]string
	values      map[string]any    // key: a string, a []string, or nil for an empty section
	lines       map[string]string // key: file and line
	open        map[string]bool   // keys with a variable that is not set
	problems    []string
}

func (p *yamlFile) read(text []byte) error {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if strings.Contains(text, "cannot start any token") {
			text += " (is it a tab? indent with spaces)"
		}
		return fmt.Errorf("%s: %s", p.path, text)
	}
	if len(document.Content) == 0 {
		return nil
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("%s: want keys and values, such as db: sqlite:tusk.db", p.path)
	}
	p.section(top, "")
	return nil
}

func (p *yamlFile) section(node *yaml.Node, prefix string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := strings.ReplaceAll(node.Content[i].Value, "-", "_"), node.Content[i+1]
		key := prefix + name
		where := fmt.Sprintf("%s:%d", p.path, node.Content[i].Line)
		if p.lines[key] != "" {
			p.problems = append(p.problems, fmt.Sprintf("%s: key %s comes twice", where, key))
		}
		p.lines[key] = where
		switch value.Kind {
		case yaml.MappingNode:
			if len(value.Content) == 0 {
				p.values[key] = nil
			}
			p.section(value, key+".")
		case yaml.SequenceNode:
			list := []string{}
			for _, item := range value.Content {
				if item.Kind != yaml.ScalarNode {
					p.problems = append(p.problems, fmt.Sprintf("%s:%d: %s: want a list of plain values", p.path, item.Line, key))
					continue
				}
				list = append(list, p.expand(item.Value, where, key))
			}
			p.values[key] = list
		case yaml.ScalarNode:
			p.values[key] = p.expand(value.Value, where, key)
		default:
			p.problems = append(p.problems, fmt.Sprintf("%s: %s: want a plain value", where, key))
		}
	}
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expand replaces ${NAME} by the value of the variable.
func (p *yamlFile) expand(text, where, key string) string {
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		name := found[2 : len(found)-1]
		value, set := p.environment[name]
		if !set {
			p.problems = append(p.problems, fmt.Sprintf("%s: %s: the variable %s is not set", where, key, found))
			p.open[key] = true
		}
		return value
	})
}
