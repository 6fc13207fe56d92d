// Renders a chart as `helm template` does: Go's text/template with sprig's functions and Helm's own (include, tpl, required, toYaml,
// fromYaml, toJson, lookup without a cluster), and the objects Values, Release, Chart, Template, Files and Capabilities.
//
//	render CHART RELEASE NAMESPACE [VALUES.yaml...]
//
// Each further file of values wins over those before it. Prints the manifests, without NOTES.txt; --notes prints only that.
// Needs Debian's golang-github-masterminds-sprig-dev and golang-k8s-sigs-yaml-dev.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type object = map[string]interface{}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func yamlRead(path string) object {
	text, err := os.ReadFile(path)
	end(err)
	values := object{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		end(fmt.Errorf("%s: %w", path, err))
	}
	return values
}

// As Helm lays values over each other: maps key by key, null removes, all else is replaced.
func merge(under, over object) object {
	for key, value := range over {
		lower, both := under[key].(object)
		upper, isMap := value.(object)
		switch {
		case value == nil:
			delete(under, key)
		case both && isMap:
			under[key] = merge(lower, upper)
		default:
			under[key] = value
		}
	}
	return under
}

// Files of the chart, as .Files has them.
type files struct{ chart string }

func (f files) Get(name string) string {
	text, _ := os.ReadFile(filepath.Join(f.chart, name))
	return string(text)
}

func toYaml(value interface{}) string {
	text, err := yaml.Marshal(value)
	end(err)
	return strings.TrimSuffix(string(text), "\n")
}

func functions(all *template.Template) template.FuncMap {
	depth := map[string]int{}
	table := sprig.TxtFuncMap()
	delete(table, "env") // Helm has none of these
	delete(table, "expandenv")
	own := template.FuncMap{
		"toYaml": toYaml,
		"toJson": func(value interface{}) string { text, err := json.Marshal(value); end(err); return string(text) },
		"fromYaml": func(text string) object {
			values := object{}
			if err := yaml.Unmarshal([]byte(text), &values); err != nil {
				values["Error"] = err.Error()
			}
			return values
		},
		"include": func(name string, data interface{}) (string, error) {
			var out bytes.Buffer
			if depth[name]++; depth[name] > 1000 {
				return "", errors.New("include " + name + " without end")
			}
			err := all.ExecuteTemplate(&out, name, data)
			depth[name]--
			return out.String(), err
		},
		"tpl": func(text string, data interface{}) (string, error) {
			var out bytes.Buffer
			clone, err := all.Clone()
			if err == nil {
				clone, err = clone.New("tpl").Parse(text)
			}
			if err == nil {
				err = clone.Execute(&out, data)
			}
			return out.String(), err
		},
		"required": func(message string, value interface{}) (interface{}, error) {
			if text, isText := value.(string); value == nil || (isText && text == "") {
				return value, errors.New(message)
			}
			return value, nil
		},
		"lookup": func(...string) object { return object{} },
	}
	for name, function := range own {
		table[name] = function
	}
	return table
}

func main() {
	arguments := os.Args[1:]
	notes := len(arguments) > 0 && arguments[0] == "--notes"
	if notes {
		arguments = arguments[1:]
	}
	if len(arguments) < 3 {
		end(errors.New("usage: render [--notes] CHART RELEASE NAMESPACE [VALUES.yaml...]"))
	}
	chart := arguments[0]
	values := yamlRead(filepath.Join(chart, "values.yaml"))
	for _, path := range arguments[3:] {
		values = merge(values, yamlRead(path))
	}
	meta := object{} // Chart.yaml, whose fields begin with capitals in templates
	for key, value := range yamlRead(filepath.Join(chart, "Chart.yaml")) {
		meta[strings.ToUpper(key[:1])+key[1:]] = value
	}
	data := object{
		"Values":       values,
		"Chart":        meta,
		"Files":        files{chart},
		"Release":      object{"Name": arguments[1], "Namespace": arguments[2], "Service": "Helm", "IsInstall": true, "IsUpgrade": false, "Revision": 1},
		"Capabilities": object{"KubeVersion": object{"Version": "v1.31.0", "Major": "1", "Minor": "31"}},
	}
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	end(err)
	sort.Strings(paths)
	all := template.New("chart")
	all.Funcs(functions(all))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		end(err)
		_, err = all.New(filepath.Base(path)).Parse(string(text))
		end(err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") || (name == "NOTES.txt") != notes {
			continue
		}
		data["Template"] = object{"Name": meta["Name"].(string) + "/templates/" + name, "BasePath": meta["Name"].(string) + "/templates"}
		var out bytes.Buffer
		end(all.ExecuteTemplate(&out, name, data))
		text := strings.ReplaceAll(out.String(), "<no value>", "") // as Helm does
		if strings.TrimSpace(text) != "" && notes {
			fmt.Print(text)
		} else if strings.TrimSpace(text) != "" {
			fmt.Printf("---\n# Source: %s\n%s\n", data["Template"].(object)["Name"], strings.Trim(text, "\n"))
		}
	}
}
