# SPDX-License-Identifier: Apache-2.0
"""Who is calling comes from the kernel or from a certificate, never from the message."""

import unittest

from harness import *  # noqa: F403

Code = grpc.StatusCode
ALICE, BOB, CAROL, ADMIN = 61101, 61102, 61103, 61104


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run clients as other users")
class Users(DaemonTest):
    server = "max_tenant_servers = 4\nidle_timeout_ms = 1000"
    mode = "explicit"
    sections = f"""
[admin]
uids = [{ADMIN}]
[[tenant]]
name = "team"
uids = [{ALICE}, {BOB}]
weight = 300
max_requests = 2
"""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for model in ("echo", "spin"):
            cls.client.inference.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name=model), timeout=120)

    def as_user(self, uid, code, **more):
        return as_user(uid, f"client = Client({self.daemon.address!r})\n{code}", **more)

    def who(self, uid):
        return self.as_user(uid, "print(client.control.Status(control_pb2.StatusRequest(), timeout=60).caller.name)").stdout.strip()

    def test_a_uid_is_its_tenant(self):
        self.assertEqual(self.who(ALICE), "team")
        self.assertEqual(self.who(BOB), "team")
        self.assertEqual(self.who(CAROL), f"uid:{CAROL}")

    def test_requests_are_counted_for_who_sent_them(self):
        for uid in (ALICE, CAROL):
            self.as_user(uid, "client.inference.ModelInfer(echo_request(), timeout=60)")
        tenants = {t.tenant.name: t for t in self.client.control.ListTenants(control_pb2.ListTenantsRequest(), timeout=60).tenants}
        self.assertGreaterEqual(tenants["team"].succeeded, 1)
        self.assertGreaterEqual(tenants[f"uid:{CAROL}"].succeeded, 1)
        self.assertEqual(tenants["team"].max_in_flight, 2)

    def test_only_administrators_change_what_is_served(self):
        calls = {
            "load": 'client.inference.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="echo"), timeout=60)',
            "unload": 'client.inference.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="nope"), timeout=60)',
            "drain": 'client.control.Drain(control_pb2.DrainRequest(device="host"), timeout=60)',
            "resume": 'client.control.Resume(control_pb2.ResumeRequest(device="host"), timeout=60)',
            "reset": 'client.control.ResetDevice(control_pb2.ResetDeviceRequest(device="host"), timeout=60)',
        }
        for name, call in calls.items():
            code = f"try:\n    {call}\nexcept grpc.RpcError as e:\n    print(e.code().name, e.details())"
            with self.subTest(name):
                self.assertIn("PERMISSION_DENIED", self.as_user(CAROL, code).stdout)
        code = f"try:\n    {calls['unload']}\nexcept grpc.RpcError as e:\n    print(e.code().name)"
        self.assertIn("NOT_FOUND", self.as_user(ADMIN, code).stdout)
        self.as_user(ADMIN, calls["load"])
        self.assert_serves()

    def test_a_tenants_cap_holds_for_all_its_users_together(self):
        code = """
calls = [client.inference.ModelInfer.future(spin_request(30000), timeout=120) for _ in range(6)]
codes = []
for call in calls:
    try:
        call.result()
        codes.append("OK")
    except grpc.RpcError as error:
        codes.append(error.code().name)
        assert any(key == "grpc-status-details-bin" and b"google.rpc.RetryInfo" in value for key, value in error.trailing_metadata()), error
print(codes.count("OK"), codes.count("RESOURCE_EXHAUSTED"), len(codes))
"""
        ok, refused, total = map(int, self.as_user(ALICE, code).stdout.split())
        self.assertEqual(ok + refused, total)
        self.assertGreaterEqual(refused, 1)
        self.assertGreaterEqual(ok, 2)

    def test_more_users_than_servers_get_their_turn(self):
        for uid in range(61200, 61210):
            self.assertEqual(self.who(uid), f"uid:{uid}")

    def test_messages_cannot_claim_to_be_somebody(self):
        code = """
r = client.control.Status(control_pb2.StatusRequest(), timeout=60, metadata=(("uid", "0"), ("x-tenant", "team"), ("authorization", "root")))
print(r.caller.name)"""
        self.assertEqual(self.as_user(CAROL, code).stdout.strip(), f"uid:{CAROL}")


def certificate(directory, name, ca=None, subject="/CN=x", extensions=""):
    """name.key and name.pem, signed by `ca` or by itself."""
    key, request, pem = (directory / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], **quiet)
    if ca is None:
        subprocess.run(["openssl", "req", "-x509", "-new", "-key", key, "-subj", subject, "-days", "2", "-out", pem], **quiet)
        return pem.read_bytes(), key.read_bytes()
    subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", subject, "-out", request], **quiet)
    extra = directory / f"{name}.ext"
    extra.write_text(extensions)
    subprocess.run(["openssl", "x509", "-req", "-in", request, "-CA", directory / f"{ca}.pem", "-CAkey", directory / f"{ca}.key", "-days", "2",
                    "-CAcreateserial", "-extfile", extra, "-out", pem], **quiet)
    return pem.read_bytes(), key.read_bytes()


class Certificates(DaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.keys = Path(tempfile.mkdtemp(prefix="npud-tls-"))
        cls.addClassCleanup(shutil.rmtree, cls.keys, ignore_errors=True)
        cls.ca, _ = certificate(cls.keys, "ca", subject="/CN=test ca")
        certificate(cls.keys, "server", ca="ca", subject="/CN=npud", extensions="subjectAltName=DNS:localhost")
        cls.port = free_port()
        cls.sections = f"""
[tls]
address = "127.0.0.1:{cls.port}"
certificate_file = "{cls.keys}/server.pem"
key_file = "{cls.keys}/server.key"
client_ca_file = "{cls.keys}/ca.pem"
[[tenant]]
name = "cameras"
certificates = ["door"]
"""
        super().setUpClass()

    def connect(self, pem=None, key=None):
        credentials = grpc.ssl_channel_credentials(self.ca, key, pem)
        channel = grpc.secure_channel(f"localhost:{self.port}", credentials)
        self.addCleanup(channel.close)
        return rpc.GRPCInferenceServiceStub(channel), control_pb2_grpc.ControlStub(channel)

    def test_the_certificates_name_is_the_tenant(self):
        for name, tenant in (("door", "cameras"), ("garden", "cert:garden")):
            inference, control = self.connect(*certificate(self.keys, name, ca="ca", subject=f"/CN={name}"))
            self.assertEqual(control.Status(control_pb2.StatusRequest(), timeout=60).caller.name, tenant)
            self.assertEqual(inference.ModelInfer(echo_request((9.0,)), timeout=60).raw_output_contents[0], floats(9.0))

    def test_without_a_certificate_or_with_a_strangers_nothing_is_served(self):
        strangers = certificate(self.keys, "stranger", subject="/CN=door")
        for pair in ((), strangers):
            inference, _ = self.connect(*pair)
            with self.assertRaises(grpc.RpcError) as caught:
                inference.ServerLive(pb.ServerLiveRequest(), timeout=10)
            self.assertIn(caught.exception.code(), (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED))
        self.assert_serves()

    def test_shared_memory_and_administration_are_not_for_the_network(self):
        inference, control = self.connect(*certificate(self.keys, "door2", ca="ca", subject="/CN=door"))
        request = pb.SystemSharedMemoryRegisterRequest(name="r", key="/r", byte_size=8)
        self.refused(Code.PERMISSION_DENIED, "unix socket", inference.SystemSharedMemoryRegister, request)
        self.refused(Code.PERMISSION_DENIED, "administrators", control.Drain, control_pb2.DrainRequest(device="host"))
        self.assertNotIn("system_shared_memory", inference.ServerMetadata(pb.ServerMetadataRequest(), timeout=60).extensions)

    def test_plain_http2_on_the_tls_port_is_closed(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as s:
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            self.assertTrue(closed(s))
        self.assert_serves()


if __name__ == "__main__":
    unittest.main()
