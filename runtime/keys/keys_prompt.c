/* runtime/keys/keys_prompt.c - see keys_prompt.h. */
#include "runtime/keys/keys_prompt.h"
#include "runtime/base/sl_array.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

sl_err keys_json_failed(struct sl_error *why, const char *what, const json_error_t *error)
{
    return sl_fail(why, SL_ERR_INVALID, "%s: not JSON: %s (line %d, column %d)", what, error->text,
                   error->line, error->column);
}

static sl_err token_add(struct sl_keys_prompt *prompt, uint64_t value, struct sl_error *why)
{
    if (!SL_ARRAY_ROOM(prompt->tokens, prompt->token_room, prompt->token_count + 1)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "tokens: no memory for %" PRIu64,
                       prompt->token_count + 1);
    }
    prompt->tokens[prompt->token_count++] = (uint32_t)value;
    return SL_OK;
}

static sl_err tokens_take(struct sl_keys_prompt *prompt, const json_t *list, struct sl_error *why)
{
    if (!json_is_array(list)) {
        return sl_fail(why, SL_ERR_INVALID, "tokens: %s", list == NULL ? "missing" : "not a list");
    }
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i);
        json_int_t value = json_integer_value(token);
        bool fine = json_is_integer(token) && value >= 0 && value <= (json_int_t)UINT32_MAX;
        err = fine ? token_add(prompt, (uint64_t)value, why)
                   : sl_fail(why, SL_ERR_INVALID, "tokens: element %zu is not an integer in 0..%u",
                             i, UINT32_MAX);
    }
    return err;
}

/* Reads a text without NUL; null and absent give NULL. */
static sl_err text_take(json_t *object, const char *name, const char **out, struct sl_error *why)
{
    const json_t *value = json_object_get(object, name);
    *out = NULL;
    if (value == NULL || json_is_null(value)) {
        return SL_OK;
    }
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value)) {
        return sl_fail(why, SL_ERR_INVALID, "%s: not a text without NUL", name);
    }
    *out = json_string_value(value);
    return SL_OK;
}

static sl_err object_take(struct sl_keys_prompt *prompt, json_t *object, struct sl_error *why)
{
    static const char *const known[] = {"tokens", "extras", "seed", "parent"};
    const char *name;
    const json_t *value;
    json_object_foreach(object, name, value)
    {
        size_t i = 0;
        while (i < SL_COUNT(known) && strcmp(name, known[i]) != 0) {
            i++;
        }
        if (i == SL_COUNT(known)) {
            return sl_fail(why, SL_ERR_INVALID,
                           "member '%.40s' is unknown; tokens, extras, seed and parent are known",
                           name);
        }
    }
    sl_err err = tokens_take(prompt, json_object_get(object, "tokens"), why);
    if (err == SL_OK) {
        err = text_take(object, "seed", &prompt->seed, why);
    }
    return err == SL_OK ? text_take(object, "parent", &prompt->parent, why) : err;
}

static void prompt_empty(struct sl_keys_prompt *prompt)
{
    json_decref(prompt->json);
    *prompt = (struct sl_keys_prompt){.tokens = prompt->tokens, .token_room = prompt->token_room};
}

void keys_prompt_clear(struct sl_keys_prompt *prompt)
{
    prompt_empty(prompt);
    free(prompt->tokens);
    *prompt = (struct sl_keys_prompt){.tokens = NULL};
}

sl_err keys_prompt_json(struct sl_keys_prompt *prompt, const char *line, uint64_t length_bytes,
                        struct sl_error *why)
{
    json_error_t error;
    prompt_empty(prompt);
    if (length_bytes > SL_KEYS_LINE_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "line: longer than %" PRIu64 " bytes",
                       SL_KEYS_LINE_BYTES_MAX);
    }
    prompt->json = json_loadb(line, length_bytes, KEYS_JSON_FLAGS | JSON_DECODE_ANY, &error);
    if (prompt->json == NULL) {
        return keys_json_failed(why, "line", &error);
    }
    if (!json_is_object(prompt->json)) {
        return sl_fail(why, SL_ERR_INVALID, "line: not a JSON object");
    }
    return object_take(prompt, prompt->json, why);
}
