/* client/examples/put_get.c - puts a value, looks it up, gets a copy, and reads it in place:
 *
 *     sluice-node start && cc client/examples/put_get.c -lsluice -o put_get && ./put_get */
#include <sluice.h>

#include <stdio.h>

int main(void)
{
    static const char value[] = "a value of up to 1 GiB";
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION};
    const struct sl_object_key key = {.at = "greeting", .length = 8};
    struct sl_client *client = NULL;
    struct sl_error why = {0};
    struct sl_view view = {0};
    char copy[sizeof value] = "";
    uint64_t length = 0;

    if (sl_client_open(&options, &client, &why) != SL_OK ||
        sl_put(client, key, value, sizeof value, 0, &why) != SL_OK ||
        sl_get(client, key, (struct sl_buffer){copy, sizeof copy}, &length, 0, &why) != SL_OK ||
        sl_get_pinned(client, key, &view, 0, &why) != SL_OK) {
        (void)fprintf(stderr, "put_get: %s\n", why.text);
        sl_client_close(&client);
        return 1;
    }
    printf("a copy: %s\nin place: %s\n", copy, (const char *)view.at);
    sl_view_release(client, &view); /* until here the bytes stay unchanged */
    printf("exists: %s\n", sl_exists(client, key) == SL_OK ? "yes" : "no");
    sl_client_close(&client);
    return 0;
}
