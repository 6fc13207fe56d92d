/* actors/transporter/main.c - entry point of the program sluice-transporter. */
#include "actors/transporter/transporter.h"
#include "ipc/msg/sl_process.h"

int main(int argc, char **argv)
{
    return sl_process_main(&sl_transporter_actor, argc, argv);
}
