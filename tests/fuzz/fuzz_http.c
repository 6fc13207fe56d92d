/* tests/fuzz/fuzz_http.c - request heads, one after another. An accepted head has line ends of one
 * kind, and a path. */
#include "client/tools/exporter/http_head.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

static void text_check(const char *text, const char *without)
{
    SL_ASSERT(text == NULL || strpbrk(text, without) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    char *text = malloc(length_bytes + 1); /* of its exact length: reading past it is detected */
    SL_ASSERT(text != NULL);
    memcpy(text, bytes, length_bytes);
    for (size_t at = 0; at < length_bytes;) {
        struct http_head head;
        ssize_t length = http_head_bytes(text + at, length_bytes - at);
        SL_ASSERT(length <= (ssize_t)(length_bytes - at));
        if (length <= 0) {
            break;
        }
        if (http_head_parse(text + at, (size_t)length, &head) == NULL) {
            SL_ASSERT(head.path[0] == '/' && head.method[0] != '\0');
            text_check(head.path, " \t\r\n?#");
            text_check(head.method, " \t\r\n");
            text_check(head.host, "\r\n");
            text_check(head.authorization, "\r\n");
            text_check(head.origin, "\r\n");
        }
        at += (size_t)length;
    }
    free(text);
    return 0;
}
