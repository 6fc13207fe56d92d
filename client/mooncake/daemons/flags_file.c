/* client/mooncake/daemons/flags_file.c - flags from a JSON or YAML file. */
#include "client/mooncake/daemons/flags.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#ifdef SL_HAVE_YAML
#include <yaml.h>
#endif

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define STRENGTH       1u

/* Gives all of the file, ended by a zero. */
static sl_err file_read(const char *path, char **out, size_t *length, struct sl_error *why)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return sl_fail_os(why, errno, "config_path '%.150s'", path);
    }
    char *text = malloc(FILE_BYTES_MAX + 1);
    if (text == NULL) {
        (void)fclose(file);
        return sl_fail(why, SL_ERR_NO_MEMORY, "config_path '%.150s'", path);
    }
    size_t got = fread(text, 1, FILE_BYTES_MAX + 1, file);
    int code = ferror(file) != 0 ? errno : 0;
    (void)fclose(file);
    if (code != 0 || got > FILE_BYTES_MAX) {
        free(text);
        return code != 0 ? sl_fail_os(why, code, "read '%.150s'", path)
                         : sl_fail(why, SL_ERR_CONFIG, "'%.150s' is larger than 1 MiB", path);
    }
    text[got] = '\0';
    *out = text;
    *length = got;
    return SL_OK;
}

/* ---- JSON ---- */

static sl_err json_member_set(struct mc_flags *flags, const char *name, const json_t *value,
                              const char *path, struct sl_error *why)
{
    char number[64];
    const char *text = number;
    switch (json_typeof(value)) {
    case JSON_STRING:
        if (strlen(json_string_value(value)) != json_string_length(value)) {
            return sl_fail(why, SL_ERR_CONFIG, "%.80s: %.64s: a zero byte in a text", path, name);
        }
        text = json_string_value(value);
        break;
    case JSON_INTEGER:
        (void)snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        (void)snprintf(number, sizeof number, "%.17g", json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        text = json_is_true(value) ? "true" : "false";
        break;
    default:
        return sl_fail(why, SL_ERR_CONFIG, "%.80s: %.64s: neither text, number nor boolean", path,
                       name);
    }
    return mc_flags_set(flags, name, text, path, STRENGTH, why);
}

static sl_err json_take(struct mc_flags *flags, const char *text, size_t length, const char *path,
                        struct sl_error *why)
{
    json_error_t wrong;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &wrong);
    if (root == NULL) {
        return sl_fail(why, SL_ERR_CONFIG, "%.80s:%d: %.100s", path, wrong.line, wrong.text);
    }
    sl_err err = SL_OK;
    if (!json_is_object(root)) {
        err = sl_fail(why, SL_ERR_CONFIG, "%.80s: the file is no JSON object", path);
    }
    const char *name = NULL;
    json_t *value = NULL;
    if (err == SL_OK) {
        json_object_foreach(root, name, value)
        {
            err = json_member_set(flags, name, value, path, why);
            if (err != SL_OK) {
                break;
            }
        }
    }
    json_decref(root);
    return err;
}

/* ---- YAML ---- */

#ifdef SL_HAVE_YAML
struct yaml_reading {
    struct mc_flags *flags;
    const char *path;
    char *name; /* of the member whose value comes next; owned */
    uint32_t depth;
    bool ended;
};

static sl_err yaml_scalar(struct yaml_reading *reading, const yaml_event_t *event,
                          struct sl_error *why)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t line = event->start_mark.line + 1;
    if (reading->depth != 1) {
        return sl_fail(why, SL_ERR_CONFIG, "%.80s:%zu: lines of `name: value` were expected",
                       reading->path, line);
    }
    if (strlen(text) != event->data.scalar.length) {
        return sl_fail(why, SL_ERR_CONFIG, "%.80s:%zu: a zero byte in a text", reading->path, line);
    }
    if (reading->name == NULL) {
        reading->name = strdup(text);
        return reading->name != NULL ? SL_OK : sl_fail(why, SL_ERR_NO_MEMORY, "flags");
    }
    char source[120];
    (void)snprintf(source, sizeof source, "%.80s:%zu", reading->path, line);
    sl_err err = mc_flags_set(reading->flags, reading->name, text, source, STRENGTH, why);
    free(reading->name);
    reading->name = NULL;
    return err;
}

static sl_err yaml_event(struct yaml_reading *reading, const yaml_event_t *event,
                         struct sl_error *why)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return yaml_scalar(reading, event, why);
    case YAML_MAPPING_START_EVENT:
        reading->depth++;
        if (reading->depth == 1) {
            return SL_OK;
        }
        break;
    case YAML_MAPPING_END_EVENT:
        reading->depth--;
        return SL_OK;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_ALIAS_EVENT:
        break;
    case YAML_STREAM_END_EVENT:
        reading->ended = true;
        return SL_OK;
    default: /* starts and ends of documents */
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_CONFIG, "%.80s:%zu: neither text, number nor boolean", reading->path,
                   event->start_mark.line + 1);
}

static sl_err yaml_take(struct mc_flags *flags, const char *text, size_t length, const char *path,
                        struct sl_error *why)
{
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "yaml parser");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    struct yaml_reading reading = {.flags = flags, .path = path};
    sl_err err = SL_OK;
    while (err == SL_OK && !reading.ended) {
        yaml_event_t event;
        if (yaml_parser_parse(&parser, &event) == 0) {
            err =
                sl_fail(why, SL_ERR_CONFIG, "%.80s:%zu: %.100s", path, parser.problem_mark.line + 1,
                        parser.problem != NULL ? parser.problem : "no YAML");
            break;
        }
        err = yaml_event(&reading, &event, why);
        yaml_event_delete(&event);
    }
    free(reading.name);
    yaml_parser_delete(&parser);
    return err;
}
#else
static sl_err yaml_take(struct mc_flags *flags, const char *text, size_t length, const char *path,
                        struct sl_error *why)
{
    (void)flags;
    (void)text;
    (void)length;
    return sl_fail(why, SL_ERR_UNSUPPORTED,
                   "%.80s: this program was built without libyaml: write the file as JSON (.json)",
                   path);
}
#endif

sl_err mc_flags_load(struct mc_flags *flags, const char *path, struct sl_error *why)
{
    const char *dot = strrchr(path, '.');
    bool yaml = dot != NULL && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
    if (!yaml && (dot == NULL || strcmp(dot, ".json") != 0)) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "config_path '%.100s': the name must end in .json, .yaml or .yml", path);
    }
    SL_AUTO(free) char *text = NULL;
    size_t length = 0;
    sl_err err = file_read(path, &text, &length, why);
    if (err != SL_OK) {
        return err;
    }
    return yaml ? yaml_take(flags, text, length, path, why)
                : json_take(flags, text, length, path, why);
}
