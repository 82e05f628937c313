// SPDX-License-Identifier: Apache-2.0
// npuctl: npud from the command line.
#include <iostream>

#include "commands.h"
#include "output.h"

namespace npud::ctl {

volatile std::sig_atomic_t interrupted = 0;

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

std::optional<std::chrono::milliseconds> Session::timeout() const {
  if (!timeout_s) return std::nullopt;
  return std::chrono::milliseconds(static_cast<std::int64_t>(*timeout_s * 1000));
}

client::Result<client::Client> Session::open() const {
  client::ConnectOptions options = connect;
  if (auto given = timeout()) options.timeout = *given;
  if (!tls.ca_file.empty() || !tls.certificate_file.empty() || !tls.key_file.empty()) options.tls = tls;
  return client::Client::connect(options);
}

}  // namespace npud::ctl

int main(int argc, char** argv) {
  using namespace npud::ctl;
  CLI::App app("Talks to npud, which lets many processes share one NPU.", "npuctl");
  app.set_version_flag("--version", "npuctl " NPUD_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // options of the whole command line may come after the command, too
  app.footer(
      "Exit status: 0 done, 1 npud refused or something isn't well, 2 wrong usage, 3 npud can't be reached.\n"
      "npuctl COMMAND --help tells more; so does npuctl(1).");
  Session session;
  app.add_option("-a,--address", session.connect.address,
                 "Socket (/run/npud/npud.sock) or host:port; or set NPUD_ADDRESS")
      ->type_name("ADDRESS");
  app.add_option("--ca", session.tls.ca_file, "For host:port: CA that signed npud's certificate (PEM)")
      ->check(CLI::ExistingFile);
  app.add_option("--cert", session.tls.certificate_file,
                 "For host:port: your certificate (PEM); its name is your tenant")
      ->check(CLI::ExistingFile);
  app.add_option("--key", session.tls.key_file, "For host:port: your certificate's key (PEM)")
      ->check(CLI::ExistingFile);
  app.add_option("--server-name", session.tls.server_name,
                 "For host:port: the name in npud's certificate, if it isn't the host's");
  app.add_option("--timeout", session.timeout_s, "Seconds to wait for an answer (5; longer to load)")
      ->check(CLI::Range(0.01, 86400.0))
      ->type_name("SECONDS");
  app.add_flag("--json", session.json, "Print JSON for programs");
  add_model_commands(app, session);
  add_infer_command(app, session);
  add_control_commands(app, session);
  add_events_command(app, session);
  add_top_command(app, session);
  add_bench_command(app, session);
  add_doctor_command(app, session);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_ok : exit_usage;
  }
  int status = session.run();
  std::cout.flush();
  if (!std::cout) {
    std::cerr << "npuctl: can't write the output\n";
    return exit_failed;
  }
  return status;
}
