/* runtime/keys/keys_prompt.h - a prompt as a text: its tokens, and what else its keys depend on. */
#ifndef SL_KEYS_PROMPT_H
#define SL_KEYS_PROMPT_H

#include "runtime/keys/sl_keys.h"

#include <jansson.h>

#define KEYS_JSON_FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL)

/* Begins as zeros; may be filled again and again. */
struct sl_keys_prompt {
    uint32_t *tokens;
    uint64_t token_count, token_room;
    json_t *json;              /* seed and parent lie in it; NULL: there was none */
    const char *seed, *parent; /* NULL: none */
};
/* From one JSON object. */
sl_err keys_prompt_json(struct sl_keys_prompt *prompt, const char *line, uint64_t length_bytes,
                        struct sl_error *why);
/* Frees what it has. */
void keys_prompt_clear(struct sl_keys_prompt *prompt);
/* SL_ERR_INVALID: `what` is not JSON, and where. */
sl_err keys_json_failed(struct sl_error *why, const char *what, const json_error_t *error);

#endif
