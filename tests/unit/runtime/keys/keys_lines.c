/* tests/unit/runtime/keys/keys_lines.c - JSON lines in, keys out, for the cross-check against
 * CPython: one process a format. usage: keys_lines FORMAT BLOCK_TOKENS PARTIAL(0|1)
 * PICKLE_PROTOCOL(0|4|5) Prints the keys of each line and then an empty line; "error TEXT" in place
 * of keys when it is refused. */
#include "runtime/keys/sl_keys.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: keys_lines FORMAT BLOCK_TOKENS PARTIAL PICKLE_PROTOCOL\n");
        return 2;
    }
    struct sl_keys_request form = {
        .format = argv[1],
        .block_tokens = (uint32_t)strtoul(argv[2], NULL, 10),
        .partial = argv[3][0] == '1',
        .pickle_protocol = (uint32_t)strtoul(argv[4], NULL, 10),
    };
    struct sl_keys *keys = NULL;
    struct sl_error why;
    if (sl_keys_create(&keys, &why) != SL_OK) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t length; (length = getline(&line, &capacity, stdin)) > 0;) {
        if (sl_keys_print_json_line(keys, &form, line, (uint64_t)length, stdout, &why) != SL_OK) {
            printf("error %s\n", why.text);
        }
        printf("\n");
    }
    free(line);
    sl_keys_destroy(&keys);
    return fflush(stdout) == 0 ? 0 : 1;
}
