/* runtime/net/fabric/core/wire.c - frames and blobs of the tcp fabric. */
#include "runtime/net/fabric/core/wire.h"

#include <inttypes.h>
#include <string.h>

#define MAGIC_REQUEST UINT32_C(0x51544c53) /* "SLTQ" */
#define MAGIC_ANSWER  UINT32_C(0x41544c53) /* "SLTA" */
#define MAGIC_ADDRESS UINT32_C(0x4c544c53) /* "SLTL" */
#define MAGIC_KEY     UINT32_C(0x4b544c53) /* "SLTK" */

static void head_write(unsigned char *out, uint32_t magic, unsigned verb)
{
    sl_wire_put(out, magic, 4);
    sl_wire_put(out + 4, SL_WIRE_FRAME_VERSION, 1);
    sl_wire_put(out + 5, verb, 1);
}

static sl_err head_read(const unsigned char *bytes, uint32_t magic, const char *what,
                        struct sl_error *why)
{
    if (sl_wire_get(bytes, 4) != magic) {
        return sl_fail(why, SL_ERR_PROTOCOL, "%s: wrong magic 0x%08" PRIx64, what,
                       sl_wire_get(bytes, 4));
    }
    if (bytes[4] != SL_WIRE_FRAME_VERSION) {
        return sl_fail(why, SL_ERR_VERSION, "%s: version %u, not %u", what, bytes[4],
                       SL_WIRE_FRAME_VERSION);
    }
    return SL_OK;
}

void sl_wire_request_write(const struct sl_wire_request *request,
                           unsigned char out[SL_WIRE_REQUEST_BYTES])
{
    memset(out, 0, SL_WIRE_REQUEST_BYTES);
    head_write(out, MAGIC_REQUEST, request->verb);
    sl_wire_put(out + 8, request->sequence, 4);
    sl_wire_put(out + 12, request->length_bytes, 4);
    sl_wire_put(out + 16, request->offset_bytes, 8);
    sl_wire_put(out + 24, request->generation, 8);
    sl_wire_put(out + 32, request->grant, 4);
    memcpy(out + 40, request->token, SL_WIRE_TOKEN_BYTES);
}

sl_err sl_wire_request_read(const unsigned char bytes[SL_WIRE_REQUEST_BYTES],
                            struct sl_wire_request *out, struct sl_error *why)
{
    sl_err err = head_read(bytes, MAGIC_REQUEST, "request", why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_wire_request request = {
        .verb = (enum sl_wire_verb)bytes[5],
        .sequence = (uint32_t)sl_wire_get(bytes + 8, 4),
        .length_bytes = (uint32_t)sl_wire_get(bytes + 12, 4),
        .offset_bytes = sl_wire_get(bytes + 16, 8),
        .generation = sl_wire_get(bytes + 24, 8),
        .grant = (uint32_t)sl_wire_get(bytes + 32, 4),
    };
    if (request.verb != SL_WIRE_READ && request.verb != SL_WIRE_HELLO) {
        return sl_fail(why, SL_ERR_PROTOCOL, "request: verb %u is unknown", bytes[5]);
    }
    if (sl_wire_get(bytes + 6, 2) != 0 || sl_wire_get(bytes + 36, 4) != 0) {
        return sl_fail(why, SL_ERR_PROTOCOL, "request: reserved bytes are not 0");
    }
    bool wants_none = request.verb != SL_WIRE_READ;
    if (wants_none != (request.length_bytes == 0) || request.length_bytes > SL_WIRE_VALUE_MAX ||
        (wants_none && request.grant > 1)) {
        return sl_fail(why, SL_ERR_PROTOCOL, "request: length %u", request.length_bytes);
    }
    memcpy(request.token, bytes + 40, SL_WIRE_TOKEN_BYTES);
    *out = request;
    return SL_OK;
}

void sl_wire_answer_write(const struct sl_wire_answer *answer,
                          unsigned char out[SL_WIRE_ANSWER_BYTES])
{
    memset(out, 0, SL_WIRE_ANSWER_BYTES);
    head_write(out, MAGIC_ANSWER, answer->verb);
    sl_wire_put(out + 6, answer->code, 2);
    sl_wire_put(out + 8, answer->sequence, 4);
    sl_wire_put(out + 12, answer->length_bytes, 4);
}

sl_err sl_wire_answer_read(const unsigned char bytes[SL_WIRE_ANSWER_BYTES],
                           struct sl_wire_answer *out, struct sl_error *why)
{
    sl_err err = head_read(bytes, MAGIC_ANSWER, "answer", why);
    if (err != SL_OK) {
        return err;
    }
    uint64_t code = sl_wire_get(bytes + 6, 2);
    struct sl_wire_answer answer = {
        .verb = (enum sl_wire_verb)bytes[5],
        .sequence = (uint32_t)sl_wire_get(bytes + 8, 4),
        .length_bytes = (uint32_t)sl_wire_get(bytes + 12, 4),
    };
    if ((answer.verb != SL_WIRE_READ && answer.verb != SL_WIRE_HELLO) || code >= SL_ERR_COUNT) {
        return sl_fail(why, SL_ERR_PROTOCOL, "answer: verb %u, code %" PRIu64, bytes[5], code);
    }
    answer.code = (sl_err)code;
    bool has_value = answer.verb == SL_WIRE_READ && answer.code == SL_OK;
    if (has_value != (answer.length_bytes != 0) || answer.length_bytes > SL_WIRE_VALUE_MAX) {
        return sl_fail(why, SL_ERR_PROTOCOL, "answer: length %u", answer.length_bytes);
    }
    *out = answer;
    return SL_OK;
}

void sl_wire_address_write(const struct sl_wire_address *address,
                           unsigned char out[SL_WIRE_ADDRESS_BYTES])
{
    memset(out, 0, SL_WIRE_ADDRESS_BYTES);
    head_write(out, MAGIC_ADDRESS, address->ipv6 ? 6 : 4);
    sl_wire_put(out + 6, address->port, 2);
    sl_wire_put(out + 8, address->scope, 4);
    memcpy(out + 16, address->ip, sizeof(address->ip));
    sl_wire_put(out + 12, address->clear ? 1 : 0, 4);
    memcpy(out + 32, address->id, SL_WIRE_ID_BYTES);
    memcpy(out + 48, address->psk, SL_WIRE_PSK_BYTES);
}

sl_err sl_wire_address_read(const void *blob, uint32_t length_bytes, struct sl_wire_address *out,
                            struct sl_error *why)
{
    const unsigned char *bytes = blob;
    /* Check the version first: other releases may use other lengths. */
    sl_err err = length_bytes < 8 ? SL_OK : head_read(bytes, MAGIC_ADDRESS, "address", why);
    if (err != SL_OK) {
        return err;
    }
    if (length_bytes != SL_WIRE_ADDRESS_BYTES) {
        return sl_fail(why, SL_ERR_PROTOCOL, "address: %u bytes, not %u", length_bytes,
                       SL_WIRE_ADDRESS_BYTES);
    }
    if ((bytes[5] != 4 && bytes[5] != 6) || sl_wire_get(bytes + 12, 4) > 1) {
        return sl_fail(why, SL_ERR_PROTOCOL, "address: family %u, flags 0x%" PRIx64, bytes[5],
                       sl_wire_get(bytes + 12, 4));
    }
    *out = (struct sl_wire_address){
        .ipv6 = bytes[5] == 6,
        .clear = sl_wire_get(bytes + 12, 4) != 0,
        .port = (uint16_t)sl_wire_get(bytes + 6, 2),
        .scope = (uint32_t)sl_wire_get(bytes + 8, 4),
    };
    memcpy(out->ip, bytes + 16, sizeof(out->ip));
    memcpy(out->id, bytes + 32, SL_WIRE_ID_BYTES);
    memcpy(out->psk, bytes + 48, SL_WIRE_PSK_BYTES);
    return SL_OK;
}

void sl_wire_key_write(const struct sl_wire_key *key, unsigned char out[SL_WIRE_KEY_BYTES])
{
    memset(out, 0, SL_WIRE_KEY_BYTES);
    head_write(out, MAGIC_KEY, SL_WIRE_READ);
    sl_wire_put(out + 8, key->grant, 4);
    sl_wire_put(out + 16, key->generation, 8);
    sl_wire_put(out + 24, key->offset_bytes, 8);
    sl_wire_put(out + 32, key->length_bytes, 8);
    memcpy(out + 40, key->token, SL_WIRE_TOKEN_BYTES);
}

sl_err sl_wire_key_read(const void *blob, uint32_t length_bytes, struct sl_wire_key *out,
                        struct sl_error *why)
{
    const unsigned char *bytes = blob;
    if (length_bytes != SL_WIRE_KEY_BYTES) {
        return sl_fail(why, SL_ERR_PROTOCOL, "key: %u bytes, not %u", length_bytes,
                       SL_WIRE_KEY_BYTES);
    }
    sl_err err = head_read(bytes, MAGIC_KEY, "key", why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_wire_key key = {
        .grant = (uint32_t)sl_wire_get(bytes + 8, 4),
        .generation = sl_wire_get(bytes + 16, 8),
        .offset_bytes = sl_wire_get(bytes + 24, 8),
        .length_bytes = sl_wire_get(bytes + 32, 8),
    };
    if (bytes[5] != SL_WIRE_READ || key.length_bytes == 0 ||
        key.offset_bytes > UINT64_MAX - key.length_bytes) {
        return sl_fail(why, SL_ERR_PROTOCOL, "key: verb %u, range %" PRIu64 "+%" PRIu64, bytes[5],
                       key.offset_bytes, key.length_bytes);
    }
    memcpy(key.token, bytes + 40, SL_WIRE_TOKEN_BYTES);
    *out = key;
    return SL_OK;
}
