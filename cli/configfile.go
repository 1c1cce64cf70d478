package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlParser reads tusk.yaml for koanf. Unlike koanf's own parser it knows on
// which line each value stands, and finds keys that come twice.
type yamlParser struct {
	path        string
	environment map[string]string
	lines       map[string]string // key: file and line
	problems    []string
}

// Unmarshal implements koanf.Parser: all leaves are a string or a []string.
func (p *yamlParser) Unmarshal(text []byte) (map[string]any, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if strings.Contains(text, "cannot start any token") {
			text += " (is it a tab? indent with spaces)"
		}
		return nil, fmt.Errorf("%s: %s", p.path, text)
	}
	if len(document.Content) == 0 {
		return map[string]any{}, nil
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: want keys and values, such as db: sqlite:tusk.db", p.path)
	}
	return p.section(top, ""), nil
}

// Marshal implements koanf.Parser, which nobody asks for.
func (p *yamlParser) Marshal(map[string]any) ([]byte, error) { return nil, errors.ErrUnsupported }

func (p *yamlParser) section(node *yaml.Node, prefix string) map[string]any {
	values := map[string]any{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := strings.ReplaceAll(node.Content[i].Value, "-", "_"), node.Content[i+1]
		key := prefix + name
		where := fmt.Sprintf("%s:%d", p.path, node.Content[i].Line)
		if _, twice := values[name]; twice {
			p.problems = append(p.problems, fmt.Sprintf("%s: key %s comes twice", where, key))
		}
		p.lines[key] = where
		switch value.Kind {
		case yaml.MappingNode:
			values[name] = p.section(value, key+".")
		case yaml.SequenceNode:
			list := []string{}
			for _, item := range value.Content {
				if item.Kind != yaml.ScalarNode {
					p.problems = append(p.problems, fmt.Sprintf("%s:%d: %s: want a list of plain values", p.path, item.Line, key))
					continue
				}
				list = append(list, p.expand(item.Value, where, key))
			}
			values[name] = list
		case yaml.ScalarNode:
			values[name] = p.expand(value.Value, where, key)
		default:
			p.problems = append(p.problems, fmt.Sprintf("%s: %s: want a plain value", where, key))
		}
	}
	return values
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expand puts the values of variables in the place of ${NAME}.
func (p *yamlParser) expand(text, where, key string) string {
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		name := found[2 : len(found)-1]
		value, set := p.environment[name]
		if !set {
			p.problems = append(p.problems, fmt.Sprintf("%s: %s: the variable %s is not set", where, key, found))
		}
		return value
	})
}
